"""The Spark job that reads the traces of failovers and says where their time went."""
