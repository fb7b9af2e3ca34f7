#!/usr/bin/env bash
# Packs each SDK, installs the package in an empty project, and runs the examples of its
# README there. conformance starts the servers and runs this script.
set -euo pipefail
sdk=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# block README LANGUAGE N prints the Nth code block of the language.
block() {
	awk -v fence="\`\`\`$2" -v want="$3" '$0 == "```" { inside = 0 } inside { print } $0 == fence { inside = (++n == want) }' "$1"
}

# expect TEXT COMMAND... fails unless the output of the command has the text.
expect() {
	local text=$1 out
	shift
	out=$("$@" 2>&1) || { echo "$out"; echo "failed: $*"; exit 1; }
	grep -qF -- "$text" <<<"$out" || { echo "the output of $* has no \"$text\": $out"; exit 1; }
}

echo "npm pack"
mkdir "$work/typescript" && cd "$work/typescript"
npm pack --silent --ignore-scripts --pack-destination "$work" "$sdk/typescript" >/dev/null
echo '{"private": true, "type": "module"}' >package.json
npm install --silent --no-audit --no-fund --offline "$work"/headgate-sdk-*.tgz >/dev/null
[ "$(ls node_modules)" = "@headgate" ] || { echo "the package has dependencies: $(ls node_modules)"; exit 1; }
for n in 1 2 3; do block "$sdk/typescript/README.md" js $n >"example$n.mjs"; done
ln -s "$sdk/typescript/node_modules/express" node_modules/express
expect allowed node example1.mjs
expect "" node example2.mjs
expect Conformance node example3.mjs

echo "pip wheel"
mkdir "$work/python" && cd "$work/python"
cp -r "$sdk/python" source && rm -rf source/.venv source/build
"$sdk/python/.venv/bin/pip" wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir "$work" ./source
python3 -m venv venv
venv/bin/pip install --quiet --no-index --disable-pip-version-check "$work"/headgate-*.whl
for n in 1 2 3; do block "$sdk/python/README.md" python $n >"example$n.py"; done
expect allowed venv/bin/python example1.py
expect Conformance venv/bin/python example3.py
expect "" env PYTHONPATH="$(echo venv/lib/python*/site-packages)" "$sdk/python/.venv/bin/python" example2.py

echo "go get"
mkdir -p "$work"/go/{1,2,3} && cd "$work/go"
for n in 1 2 3; do block "$sdk/go/README.md" go $n >"$n/main.go"; done
export GOFLAGS=-mod=mod GOPROXY=off
go mod init example.test/example 2>/dev/null
go mod edit -require github.com/headgate/headgate/sdk/go@v0.0.0 -replace "github.com/headgate/headgate/sdk/go=$sdk/go"
go get github.com/headgate/headgate/sdk/go
[ "$(go list -m all | wc -l)" = 2 ] || { echo "the module has dependencies:"; go list -m all; exit 1; }
expect allowed go run ./1
go build -o /dev/null ./2
expect Conformance go run ./3
