"""Where the failpoints of an election process are: at its ports (see ``regnum_service.failpoints``)."""
