// What axe finds in a page, as check.mjs and site.mjs report it.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

// `exclude`: selectors of what is not judged; `options` are axe's own, besides the rules.
export async function judged(page, { exclude = [], ...options } = {}) {
  await page.evaluate(axe);
  const told = await page.evaluate(
    ([values, left, more]) =>
      window.axe.run(left.length ? { exclude: left } : document, { ...more, runOnly: { type: "tag", values }, resultTypes: ["violations"] }),
    [RULES, exclude, options],
  );
  return {
    violations: told.violations.map((one) => ({
      id: one.id,
      impact: one.impact,
      nodes: one.nodes.slice(0, 3).map((node) => [node.html.slice(0, 200), node.failureSummary]),
      count: one.nodes.length,
    })),
    rules: told.passes.length,
  };
}
