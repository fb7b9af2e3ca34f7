"""Ten calls with openapi-python-client."""

import os
import random

from generated import AuthenticatedClient
from generated.api.decisions import check, check_batch
from generated.api.keys import create_key
from generated.api.tenants import create_tenant, get_tenant, get_usage, list_tenants, update_tenant
from generated.models import (
    BatchDecision,
    BatchRequest,
    CheckRequest,
    Attributes,
    Decision,
    Denial,
    NewKey,
    NewTenant,
    NewTenantDocument,
    Problem,
    Scope,
    TenantDocument,
)

client = AuthenticatedClient(os.environ["HEADGATE_URL"], os.environ["HEADGATE_TOKEN"], raise_on_unexpected_status=True)
slug = f"pygen-{random.getrandbits(60):x}"
user = Attributes.from_dict({"user": slug})
login = {"tenant": "conformance", "method": "POST", "path": "/v1/login", "attributes": user}

checked = check.sync(client=client, body=CheckRequest(**login))
assert isinstance(checked, Decision) and checked.allowed, checked
denied = check.sync(client=client, body=CheckRequest(**login, cost=9))
assert isinstance(denied, Denial) and denied.reason == "cost_exceeds_quota" and denied.retry_after_ms is None, denied
batch = check_batch.sync(client=client, body=BatchRequest(checks=[CheckRequest(**login)]))
assert isinstance(batch.results[0], BatchDecision), batch
made = create_tenant.sync(client=client, body=NewTenant(slug=slug, tenant=NewTenantDocument(name="pygen")))
assert made.slug == slug, made
got = get_tenant.sync_detailed(slug, client=client)
assert got.parsed.tenant.name == "pygen", got
put = update_tenant.sync(slug, client=client, body=TenantDocument(name="pygen", plan="conformance"), if_match=got.headers["etag"])
assert put.tenant.plan == "conformance", put
usage = get_usage.sync(slug, client=client, policy="login-per-user")
assert len(usage.policies) == 1, usage
page = list_tenants.sync(client=client, limit=1)
assert len(page.data) == 1 and page.has_more, page
key = create_key.sync(slug, client=client, body=NewKey(name="k", scopes=[Scope.CHECK]))
assert key.token.startswith("hg_"), key
missing = get_tenant.sync("nobody-has-this", client=client)
assert isinstance(missing, Problem) and missing.status == 404, missing
print("openapi-python-client: ten calls")
