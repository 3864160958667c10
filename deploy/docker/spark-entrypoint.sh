#!/bin/bash
# What Spark on Kubernetes starts in a Pod of this image: `driver --properties-file FILE --class CLASS FILE ARGUMENTS`.
# pyspark from PyPI has Spark's jars and programs, and not the script that Spark's own images have for this.
# Anything else is a command, as without an entry point.
set -eu

case ${1:-} in
  driver)
    shift
    # spark-submit finds Spark beside pyspark, and its settings by SPARK_CONF_DIR, which Spark sets in the Pod.
    exec spark-submit --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS:?Spark says it to Pods that it starts}" \
      --deploy-mode client "$@"
    ;;
  executor)
    echo "this image has no executors: the job is for one process; leave spark.kubernetes.driver.master as local[*]" >&2
    exit 64
    ;;
  "")
    echo "say what to run, or: driver --properties-file FILE --class CLASS FILE ARGUMENTS" >&2
    exit 64
    ;;
  *) exec "$@" ;;
esac
