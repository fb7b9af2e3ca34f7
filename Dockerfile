# syntax=docker/dockerfile:1

# make base-images prints both with their digests, for --build-arg or to write here.
ARG BUILD_IMAGE=golang:1.26-bookworm
ARG RUN_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
# The modules first: they change seldom, and are then taken from the layer.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /headgate ./cmd/server
RUN go -C deploy/sbom run . /headgate "${VERSION}" /src/NOTICE >/sbom.cdx.json
# The next stage has no shell to make a folder with.
RUN mkdir -m 0700 /empty

FROM ${RUN_IMAGE}
LABEL org.opencontainers.image.title="Headgate" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /headgate /headgate
COPY LICENSE NOTICE /licenses/
COPY --from=build /sbom.cdx.json /licenses/
# A named volume takes its owner from here; only that folder is ever written to.
COPY --from=build --chown=65532:65532 /empty /data
USER 65532:65532
ENV HEADGATE_ADDR=0.0.0.0:8080 \
    HEADGATE_DATABASE_URL=sqlite:///data/headgate.db \
    HEADGATE_SNAPSHOT_FILE=/data/headgate.snapshot
VOLUME ["/data"]
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 CMD ["/headgate", "healthcheck"]
ENTRYPOINT ["/headgate"]
CMD ["serve"]
