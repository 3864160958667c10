"""Where the failpoints of a broker are: at its ports (see ``regnum_service.failpoints``)."""
