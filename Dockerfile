# A broker as an image: docs/installing.md. The context is this directory; VERSION is what `ketch --version` says.
#
#   docker build --build-arg VERSION=0.1.0 --tag ketch .
#   docker run --detach --name ketch --publish 9092:9092 --volume ketch:/data ketch
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/ketch
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_CONSTRAINT=/src/constraints.txt \
    PIP_BUILD_CONSTRAINT=/src/constraints.txt
WORKDIR /src
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY src src
ARG VERSION=
# Without the compiler's products an image would be slow, so a build that fails is an error here.
RUN SETUPTOOLS_SCM_PRETEND_VERSION_FOR_KETCH="${VERSION:-0.1.0.dev0}" KETCH_REQUIRE_NATIVE=1 \
    /opt/ketch/bin/pip install ".[certificates,oauth]"

FROM ${BASE}
# The embedded Valkey's malloc; its memory would break up into pieces with the one of the C library.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libjemalloc2 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 ketch \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin ketch \
    && install -d -o ketch -g ketch -m 0750 /data
COPY --from=build /opt/ketch /opt/ketch
# What listens on every address of the container is reached only through ports that are published. Clients on this
# machine come by localhost; for others set KETCH_ADVERTISED_HOST to the name they know.
ENV PATH=/opt/ketch/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KETCH_HOST=0.0.0.0 \
    KETCH_ADVERTISED_HOST=localhost \
    KETCH_HTTP_HOST=0.0.0.0 \
    KETCH_HTTP_PORT=8080 \
    KETCH_DATA_DIR=/data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 9092 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"KETCH_HTTP_PORT\"]}/healthz', timeout=4)"]
ENTRYPOINT ["ketch"]
CMD ["serve"]
