// Opens the documents as a site, as files and on a server below a path, and prints as one JSON object
// what tests/browser/test_site_in_chromium.py judges.  node site.mjs CHROMIUM SITE SHOTS|- PAGE...
import { existsSync, readFileSync, statSync } from "node:fs";
import { extname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { judged } from "./judged.mjs";

const [executablePath, root, shots, ...pages] = process.argv.slice(2);
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml", ".png": "image/png" };
const PLACES = {
  file: pathToFileURL(root).href + "/",
  under: "https://docs.example.org/a%20b/sub/",
};
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const looks = [];
const searches = [];

async function open(place, colorScheme, width) {
  const context = await browser.newContext({ colorScheme, viewport: { width, height: 900 }, reducedMotion: "reduce" });
  // A server without a network: the browser asks, and the site's files are the answer.
  await context.route((url) => url.hostname === "docs.example.org", (route) => {
    const path = decodeURIComponent(new URL(route.request().url()).pathname);
    const file = join(root, path.replace(/^\/a b\/sub\//, ""));
    return path.startsWith("/a b/sub/") && existsSync(file) && statSync(file).isFile()
      ? route.fulfill({ body: readFileSync(file), contentType: TYPES[extname(file)] ?? "text/plain" })
      : route.fulfill({ status: 404 });
  });
  const page = await context.newPage();
  const said = [];
  const elsewhere = [];
  page.on("console", (message) => said.push(message.text()));
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("requestfailed", (request) => said.push(`failed: ${request.url()}`));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(PLACES[place]) && !url.startsWith("data:") && !url.startsWith("blob:")) elsewhere.push(url);
  });
  return { context, page, said, elsewhere };
}

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 390]) {
    const { context, page, said, elsewhere } = await open("file", colorScheme, width);
    for (const path of pages) {
      await page.goto(PLACES.file + path);
      const found = { path, colorScheme, width };
      found.overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      found.scheme = await page.evaluate(() => document.body.dataset.mdColorScheme);
      found.pictures = await page.evaluate(() => [...document.images].filter((one) => !one.complete || !one.naturalWidth).length);
      if (shots !== "-") {
        const name = `site-${path.replaceAll("/", "-").replace(".html", "")}-${width}-${colorScheme}.png`;
        await page.screenshot({ path: join(shots, name), animations: "disabled" });
      }
      // The theme's script makes a landmark of every copy button.
      Object.assign(found, await judged(page, { exclude: [".md-code__nav"], preload: false }));
      looks.push({ ...found, said: said.splice(0), elsewhere: elsewhere.splice(0) });
    }
    await context.close();
  }
}

for (const place of Object.keys(PLACES)) {
  const { context, page, said, elsewhere } = await open(place, "light", 1280);
  await page.goto(`${PLACES[place]}hosts/index.html`);
  await page.waitForLoadState("networkidle");
  await page.keyboard.press("/"); // as every site of this theme
  await page.keyboard.type("cudafe catastrophic", { delay: 20 });
  const section = page.locator('.md-search-result__link[href*="#oom-edg"]').first();
  await section.waitFor({ state: "attached", timeout: 15000 });
  const found = { place, results: await page.locator(".md-search-result__item").count() };
  // Further sections of a page are folded.
  const folded = page.locator(".md-search-result__item", { has: section }).locator("summary");
  if (!(await section.isVisible())) await folded.click();
  await section.click();
  await page.waitForURL(/failures\.html/);
  found.anchor = await page.evaluate(() => document.getElementById(location.hash.slice(1))?.textContent ?? "");
  // Home, from a page below: the logo leads to a page, not to a folder.
  await page.locator("a.md-header__button.md-logo").click();
  await page.waitForURL(/index\.html$/);
  found.home = await page.title();
  searches.push({ ...found, said, elsewhere });
  await context.close();
}
await browser.close();
process.stdout.write(JSON.stringify({ looks, searches }));
