// Opens pages in Chromium and prints, as one JSON object, what tests/browser/test_pages_in_chromium.py
// judges.  node check.mjs CHROMIUM SHOTS|- PAGE...
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { judged } from "./judged.mjs";

const [executablePath, shots, ...pages] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const results = [];

for (const path of pages) {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      const context = await browser.newContext({
        colorScheme,
        viewport: { width, height: 900 },
        reducedMotion: "reduce",
      });
      const page = await context.newPage();
      const said = [];
      const asked = [];
      page.on("console", (message) => said.push(message.text()));
      page.on("pageerror", (error) => said.push(String(error)));
      page.on("dialog", (dialog) => { said.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
      page.on("request", (request) => asked.push(request.url()));
      const url = pathToFileURL(path).href;
      await page.goto(url);
      const loaded = asked.filter((one) => one !== url && !one.startsWith("data:"));
      const found = { path, colorScheme, width, said: [...said], loaded };
      found.overflow = await page.evaluate(
        () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
      );
      found.executable = await page.evaluate(() => {
        const inline = [...document.querySelectorAll("*")].filter((element) =>
          [...element.attributes].some(({ name }) => name.startsWith("on") || name === "style"),
        );
        return document.querySelectorAll("script,iframe,object,embed,base,form").length + inline.length;
      });
      // After the count above: playwright marks elements for it, with a style of its own.
      if (shots !== "-") {
        const name = `${basename(path, ".html")}-${width}-${colorScheme}.png`;
        await page.screenshot({ path: join(shots, name), fullPage: true, animations: "disabled" });
      }
      // The table of wheels: filtered by a GPU, then sorted by its columns.
      if (await page.locator("#board").count()) {
        const names = () => page.locator("#board tbody tr:visible th a").allTextContents();
        const board = { all: await names() };
        await page.selectOption("#f-gpu", "8.9");
        board.runs = await names();
        board.articles = await page.locator("article:visible").count();
        await page.selectOption("#f-fate", "fails");
        board.fails = await names();
        await page.selectOption("#f-fate", "");
        await page.selectOption("#f-gpu", "");
        await page.selectOption("#f-python", "3.12");
        board.python = await names();
        await page.selectOption("#f-python", "");
        if (width > 560) {
          await page.locator("#board thead button").first().focus();
          await page.keyboard.press("Enter");
          board.up = await names();
          await page.keyboard.press("Enter");
          board.down = await names();
        }
        await page.fill("#f-text", "no such wheel");
        board.none = await names();
        await page.fill("#f-text", "");
        found.board = board;
        await page.reload();
      }
      // The first tab stop is the link past the header; it leads into the report.
      await page.keyboard.press("Tab");
      found.skip = await page.evaluate(() => {
        const box = document.activeElement.getBoundingClientRect();
        return [document.activeElement.getAttribute("href"), box.left >= 0 && box.width > 0];
      });
      await page.keyboard.press("Enter");
      found.main = await page.evaluate(() => document.activeElement.id);
      // Every details opens by keyboard, every tab stop shows that it has the focus.
      const summary = page.locator("summary").first();
      if (await summary.count()) {
        await summary.focus();
        const before = await summary.evaluate((element) => element.parentElement.open);
        await page.keyboard.press("Enter");
        found.toggles = (await summary.evaluate((element) => element.parentElement.open)) !== before;
        await page.keyboard.press("Tab");
        found.outline = await page.evaluate(() =>
          document.activeElement === document.body
            ? "past the end"
            : getComputedStyle(document.activeElement).outlineStyle,
        );
      }
      const links = await page.locator('main a[href^="#"], nav a[href^="#"]').evaluateAll((all) =>
        all.filter((link) => !document.getElementById(link.hash.slice(1))).map((link) => link.hash),
      );
      found.dangling = links;
      // With everything open, so that axe sees all of it.
      await page.evaluate(() => {
        for (const one of document.querySelectorAll("details")) one.open = true;
        });
      // Of the first page of an index also its answer: a command, a link, what is to be minded.
      if (await page.locator("#line").count()) {
        await page.fill("#line", "wcw1:platform=win_amd64&python=3.12&torch=2.8.0&cuda=12.8&driver=12.9&gpu=8.9&package=natten");
        found.answered = await page.locator("#answer pre").count();
      }
      Object.assign(found, await judged(page));
      await page.evaluate(() => {
        for (const one of document.querySelectorAll("details")) one.open = false;
      });
      await page.emulateMedia({ media: "print" });
      found.unprinted = await page.evaluate(
        () => [...document.querySelectorAll("details > :not(summary)")].filter(
          (one) => !one.checkVisibility({ contentVisibilityAuto: false }) || one.getBoundingClientRect().height < 1,
        ).length,
      );
      found.paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      results.push(found);
      await context.close();
    }
  }
}
await browser.close();
process.stdout.write(JSON.stringify(results));
