# syntax=docker/dockerfile:1

# The digest decides which image it is; the tag says what it is. make base-images prints both with
# the digests that their tags have now.
ARG BUILD_IMAGE=golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d
ARG RUN_IMAGE=gcr.io/distroless/static-debian12:nonroot@sha256:d093aa3e30dbadd3efe1310db061a14da60299baff8450a17fe0ccc514a16639

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
