#!/usr/bin/env bash
# Generates a client from openapi.yaml with each generator, compiles it, and makes ten
# calls with it. conformance starts the server and runs this script. It needs Node.js,
# Python, Java 17 and Maven.
set -euo pipefail
cd "$(dirname "$0")"

echo "openapi-typescript, openapi-fetch, hey-api"
node_modules/.bin/openapi-typescript ../../openapi.yaml -o ts/schema.d.ts >/dev/null
(cd ts && rm -rf hey out && ../node_modules/.bin/openapi-ts -f openapi-ts.config.mjs --silent)
node_modules/.bin/tsc -p ts/tsconfig.json
node ts/out/openapi-fetch.js
node ts/out/hey-api.js

echo "oapi-codegen"
(cd go && go tool -modfile=../../../tools/go.mod oapi-codegen -config oapi-codegen.yaml ../../../openapi.yaml && go vet . && go run .)

echo "openapi-python-client"
rm -rf python/generated
# Its only warning is about the media type of /openapi.yaml, which no client calls.
.venv/bin/openapi-python-client generate --path ../../openapi.yaml --output-path python/generated --meta none >python/generate.log 2>&1 || {
	cat python/generate.log
	exit 1
}
.venv/bin/python python/ten_calls.py

echo "openapi-generator, Java"
mvn -q -B -f java/pom.xml clean compile exec:java >java/maven.log 2>&1 || { cat java/maven.log; exit 1; }
grep "ten calls" java/maven.log
