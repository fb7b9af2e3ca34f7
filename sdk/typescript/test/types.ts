// Compiled, and not run: decisions and errors narrow by their kind.
import { Headgate, type Decision } from "@headgate/sdk";

const client = new Headgate({ url: "http://x", token: "x", onUnreachable: (_, error) => error.kind === "unreachable" && error.code === "timeout" });

function text(decision: Decision): string {
  switch (decision.kind) {
    case "decision":
      return decision.decision_id;
    case "denial":
      return decision.detail;
    case "fallback":
      return decision.error.kind === "problem" ? decision.error.title : decision.error.code;
  }
}
export const answers = [text(await client.check({ path: "/x" }))];
// @ts-expect-error a misspelled member is an error
void client.check({ paht: "/x" });
// @ts-expect-error a mode that does not exist
void client.check({ mode: "shadow" });
export const tenant = (await client.manage.getTenant("acme")).data.tenant.name satisfies string;
