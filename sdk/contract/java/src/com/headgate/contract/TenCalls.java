package com.headgate.contract;

import com.headgate.api.DecisionsApi;
import com.headgate.api.KeysApi;
import com.headgate.api.TenantsApi;
import com.headgate.client.ApiClient;
import com.headgate.client.ApiException;
import com.headgate.model.*;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

/** Ten calls with openapi-generator. */
public final class TenCalls {
    public static void main(String[] args) throws Exception {
        ApiClient client = new ApiClient();
        client.setBasePath(System.getenv("HEADGATE_URL"));
        client.addDefaultHeader("Authorization", "Bearer " + System.getenv("HEADGATE_TOKEN"));
        DecisionsApi decisions = new DecisionsApi(client);
        TenantsApi tenants = new TenantsApi(client);
        String slug = "java-" + UUID.randomUUID().toString().substring(0, 13);

        CheckRequest login = new CheckRequest().tenant("conformance").method("POST").path("/v1/login").attributes(Map.of("user", slug));
        want("check", decisions.check(login, null, null).getAllowed());
        ApiException denied = thrown(() -> decisions.check(login.cost(9L), null, null));
        want("denied", denied.getCode() == 429 && denied.getResponseBody().contains("cost_exceeds_quota"));
        login.cost(1L);
        BatchResponse batch = decisions.checkBatch(new BatchRequest().addChecksItem(login), null, null);
        want("batch", batch.getResults().get(0).getActualInstance() instanceof BatchDecision);
        want("create", tenants.createTenant(new NewTenant().slug(slug).tenant(new NewTenantDocument().name("Java")), null).getSlug().equals(slug));
        var got = tenants.getTenantWithHttpInfo(slug);
        want("get", got.getData().getTenant().getName().equals("Java"));
        String etag = got.getHeaders().entrySet().stream().filter(e -> e.getKey().equalsIgnoreCase("etag")).findFirst().get().getValue().get(0);
        Tenant put = tenants.updateTenant(slug, etag, new TenantDocument().name("Java").plan("conformance"));
        want("put", put.getTenant().getPlan().equals("conformance"));
        want("usage", tenants.getUsage(slug, "login-per-user", null).getPolicies().size() == 1);
        want("list", tenants.listTenants(null, null, null, 1, null).getData().size() == 1);
        IssuedKey key = new KeysApi(client).createKey(slug, new NewKey().name("k").scopes(Set.of(Scope.CHECK)), null);
        want("key", key.getToken().startsWith("hg_"));
        want("missing", thrown(() -> tenants.getTenant("nobody-has-this")).getCode() == 404);
        System.out.println("openapi-generator (Java): ten calls");
    }

    interface Call { Object run() throws ApiException; }

    static ApiException thrown(Call call) {
        try {
            throw new IllegalStateException("no error: " + call.run());
        } catch (ApiException e) {
            return e;
        }
    }

    static void want(String name, boolean ok) {
        if (!ok) {
            throw new IllegalStateException(name);
        }
    }
}
