"""Tables of changes that grow: Parquet by cluster and date, in a folder or a bucket."""
