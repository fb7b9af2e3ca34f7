#!/usr/bin/env bash
# Runs all checks of schemathesis against the server that conformance started, stateful
# links included. EXAMPLES bounds the examples of each operation, and SEED repeats a run.
set -euo pipefail
cd "$(dirname "$0")"
# A key of its own: the bootstrap key ends as soon as the run creates an operator key.
key=$(curl -fsS -H "Authorization: Bearer $HEADGATE_TOKEN" -H "Content-Type: application/json" \
	-d '{"name": "schemathesis", "scopes": ["check", "manage"]}' "$HEADGATE_URL/v1/operator-keys")
token=$(.venv/bin/python -c 'import json, sys; print(json.load(sys.stdin)["token"])' <<<"$key")
HEADGATE_OWN_KEY=$(.venv/bin/python -c 'import json, sys; print(json.load(sys.stdin)["key"]["id"])' <<<"$key")
export HEADGATE_OWN_KEY
seed=${SEED:-$RANDOM}
echo "seed of schemathesis: $seed (SEED=$seed repeats it)"
out=$(mktemp)
trap 'rm -f "$out"' EXIT
SCHEMATHESIS_HOOKS=schemathesis_hooks PYTHONPATH=. .venv/bin/schemathesis run "$HEADGATE_URL/openapi.yaml" -H "Authorization: Bearer $token" \
	--checks all --max-examples "${EXAMPLES:-3}" --seed "$seed" --suppress-health-check all --no-color >"$out" 2>&1 || { cat "$out"; exit 1; }
grep -E 'Tested:|generated' "$out"
