# The job that reads traces, with Spark and Java (analysis/failover). The context is the repository's root:
#   docker build -f deploy/docker/failovers.Dockerfile --build-arg VERSION=X -t regnum-failovers:X .
# Runs as uid 10001 on a read-only root: written are the folder for its tables, and /tmp, where Spark keeps what it shuffles.
#   docker run -v TRACES:/traces:ro -v OUT:/out regnum-failovers:X python -P -m regnum_failover /traces /out
# Java comes from Debian's packages, whose versions are Debian's at the time: this image is the same only as far as they are.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ENV PYTHONHASHSEED=0 SOURCE_DATE_EPOCH=315532800 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY deploy/docker/build.lock deploy/docker/failovers.lock /locks/
# Spark is source only, as etcd3 is: a folder of jars, and Python.
RUN python -m venv /tools \
 && /tools/bin/pip install --quiet --require-hashes -r /locks/build.lock \
 && /tools/bin/pip wheel --quiet --wheel-dir /wheels --require-hashes --no-deps --no-build-isolation --use-pep517 -r /locks/failovers.lock
RUN python -m venv --without-pip /opt/regnum \
 && /tools/bin/pip --python /opt/regnum/bin/python install --quiet --no-index --no-deps --no-compile /wheels/*.whl \
 && rm -r /opt/regnum/lib/python3*/site-packages/pyspark/examples \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/regnum/lib \
 && find /opt/regnum -exec touch --no-dereference --date=@"${SOURCE_DATE_EPOCH}" {} +
COPY pyproject.toml hatch_build.py README.md LICENSE /src/
COPY proto/gen /src/proto/gen
COPY libs /src/libs
COPY analysis/failover /src/analysis/failover
ARG COMMIT=""
RUN REGNUM_COMMIT="${COMMIT}" /tools/bin/pip wheel --quiet --wheel-dir /own --no-index --no-deps --no-build-isolation /src \
 && /tools/bin/pip --python /opt/regnum/bin/python install --quiet --no-index --no-deps --no-compile --prefix /regnum /own/*.whl \
 && PYTHONPATH=$(echo /regnum/lib/python3*/site-packages) /tools/bin/pip --python /opt/regnum/bin/python check \
 && cp /src/analysis/failover/job.py /regnum/job.py \
 && rm -r /regnum/bin \
 && python -m compileall -q --invalidation-mode unchecked-hash -s /regnum -p /opt/regnum /regnum/lib \
 && find /regnum -exec touch --no-dereference --date=@"${SOURCE_DATE_EPOCH}" {} +

FROM ${BASE}
# openjdk's packages want a folder of manuals that slim images are without.
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update -q && apt-get install -q -y --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* \
 && echo 'regnum:x:10001:10001::/tmp:/usr/sbin/nologin' >> /etc/passwd && echo 'regnum:x:10001:' >> /etc/group
COPY --from=build /opt/regnum /opt/regnum
COPY --from=build /regnum /opt/regnum
# Where Spark on Kubernetes looks for it; commands go through.
COPY deploy/docker/spark-entrypoint.sh /opt/entrypoint.sh
ENV PATH=/opt/regnum/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1
ARG VERSION="unknown"
ARG COMMIT=""
ARG MADE=""
ARG BASE
LABEL org.opencontainers.image.base.name="${BASE}"
LABEL org.opencontainers.image.title="regnum-failovers" \
      org.opencontainers.image.description="The job of Regnum that says where the time of failovers went, with Spark" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.created="${MADE}"
WORKDIR /tmp
USER 10001:10001
ENTRYPOINT ["/opt/entrypoint.sh"]
CMD ["python", "-P", "-m", "regnum_failover", "--help"]
