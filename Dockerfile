# digestd in a container. The configuration and its templates are mounted at /etc/digestd; secrets
# come from the environment (or as files, with the variables that end in _FILE).

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# Which commit `digestd --version` names: --build-arg DIGESTD_COMMIT=$(git rev-parse --short=12 HEAD)
ARG DIGESTD_COMMIT=
RUN cargo build --release --locked -p digestd

FROM debian:12-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/digestd --create-home digestd
COPY --from=build /src/target/release/digestd /usr/local/bin/digestd
USER digestd
# An SQLite ledger belongs into this folder: sqlite:///var/lib/digestd/digestd.db
VOLUME /var/lib/digestd
WORKDIR /etc/digestd
EXPOSE 8080
# The image has no HTTP client; bash can ask by itself.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD \
    ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /healthz HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
# Draining takes up to worker.shutdown_grace: give the container longer than that to stop.
STOPSIGNAL SIGTERM
ENTRYPOINT ["digestd"]
CMD ["worker"]
