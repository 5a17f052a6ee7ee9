// Chooses on the front page of an index in Chromium, and prints as one JSON object what
// tests/browser/test_index_in_chromium.py judges.  node choose.mjs CHROMIUM ADDRESS LINES.json
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [executablePath, address, file] = process.argv.slice(2);
const lines = JSON.parse(readFileSync(file, "utf8"));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 360, height: 800 } });
await context.grantPermissions(["clipboard-read", "clipboard-write"]);
const page = await context.newPage();
const said = [];
page.on("console", (message) => said.push(message.text()));
page.on("pageerror", (error) => said.push(String(error)));
page.on("dialog", (dialog) => { said.push(`dialog ${dialog.message()}`); dialog.dismiss(); });

const seen = () => page.evaluate(() => {
  const { state, file, missed } = document.getElementById("answer").dataset;
  const answer = document.getElementById("answer");
  return {
    state, file: file ?? "", missed: missed ?? "", said: answer.innerText,
    command: answer.querySelector("pre")?.textContent ?? "",
    copy: !document.getElementById("copy").hidden,
    scripts: answer.querySelectorAll("script,img,iframe,[onerror]").length,
    hash: location.hash, gpu: document.getElementById("c-gpu").selectedOptions[0].text, overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
});
const rows = () => page.locator("#wheels tbody tr:visible").count();

// By the address, as somebody opens a link that was kept.
const answers = [];
await page.goto(address);
const first = await seen();
for (const line of lines) {
  await page.evaluate((hash) => new Promise((done) => {
    if (location.hash === hash) return done();
    addEventListener("hashchange", () => setTimeout(done), { once: true });
    location.hash = hash;
  }), `#${line}`);
  answers.push(await seen());
}

// The page with the verdicts, a click away.
await page.locator("#wheels td a").first().click();
await page.waitForLoadState();
const about = await page.evaluate(() => ({
  target: document.querySelector(":target")?.innerText ?? "",
  commands: [...document.querySelectorAll(":target code")].map((one) => one.textContent),
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
}));

// By hand, with the keyboard alone where people have one.
await page.goto("about:blank");
await page.goto(address);
await page.fill("#line", `Here is mine: ${lines[0]} thanks`);
const pasted = await seen();
await page.focus("#copy");
await page.keyboard.press("Enter");
await page.waitForFunction(() => document.getElementById("copied").textContent);
const copied = await page.evaluate(() => navigator.clipboard.readText());
await page.click("#keep");
const link = await page.evaluate(() => navigator.clipboard.readText());
await page.selectOption("#f-fit", "fit");
const fitting = await rows();
await page.selectOption("#f-fit", "");
await page.fill("#f-text", "UNTESTED");
const untested = await rows();
await page.fill("#f-text", "");
await page.setViewportSize({ width: 1280, height: 800 });
const column = () => page.locator("#wheels tbody tr td:nth-of-type(4)").allTextContents();
await page.locator("#wheels thead button").nth(4).focus();
await page.keyboard.press("Enter");
const up = await column();
await page.keyboard.press("Enter");
const down = await column();
await page.click("#clear");
const cleared = await seen();
await page.selectOption("#c-package", "");
await page.selectOption("#c-platform", "win_amd64");
await page.selectOption("#c-python", "3.12");
await page.fill("#c-torch", "2.8.0+cu128");
const cuda = await page.inputValue("#c-cuda");
await page.fill("#c-driver", "12.9");
const partly = await seen();
await page.selectOption("#c-gpu", { label: "RTX 40xx (8.9)" });
const asked = await seen();
await page.selectOption("#c-package", "flash-attn");
const chosen = await seen();
await page.selectOption("#c-start", "py");
const started = await seen();
await page.fill("#c-torch", "two");
const wrong = await seen();
await page.fill("#c-torch", "2.8.0+cu128");
await page.fill("#c-driver", "580.88");
const driver = await seen();
await page.fill("#c-driver", "12.9");
await page.selectOption("#c-cuda", "12.6");
const contradicted = await seen();
await page.fill("#line", "no such line");
const none = await seen();
await page.fill("#line", "");
await page.fill("#c-torch", "2.8.0");
await page.selectOption("#c-cuda", "12.8");
const bare = await seen();

// As by http from another machine, where pages have no clipboard of their own.
await page.evaluate(() => navigator.clipboard.writeText(""));
await page.fill("#c-torch", "2.8.0+cu128");
await page.selectOption("#c-start", "python");
await page.evaluate(() => {
  window.own = navigator.clipboard;
  Object.defineProperty(navigator, "clipboard", { value: undefined });
});
await page.click("#copy");
const unsecured = await page.evaluate(() => window.own.readText());

const plain = await browser.newContext({ javaScriptEnabled: false });
const still = await plain.newPage();
await still.goto(address);
const unscripted = {
  rows: await still.locator("#wheels tbody tr:visible").count(),
  links: await still.locator("#wheels tbody th a").evaluateAll((all) => all.map((one) => one.href)),
  chooser: await still.locator("#chooser:visible, #controls:visible").count(),
  told: await still.locator("noscript").first().innerText(),
};
await browser.close();
process.stdout.write(JSON.stringify({
  first, answers, pasted, copied, link, fitting, untested, up, down, cleared, cuda, partly, asked, chosen, started, wrong, driver, contradicted, none, bare, unsecured, about,
  unscripted, said,
}));
