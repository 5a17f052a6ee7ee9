// Opens the pages of an index from other places and in other ways than a plain server's root, and
// prints as one JSON object what tests/browser/test_index_elsewhere_in_chromium.py judges.
// node elsewhere.mjs CHROMIUM INDEX LINE
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [executablePath, root, line] = process.argv.slice(2);
const UNDER = "/a%20b/sub+x/";
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const context = await browser.newContext();
await context.grantPermissions(["clipboard-read", "clipboard-write"]);
// An https server without TLS and without a network: the browser asks, and these files are the answer.
await context.route((url) => url.hostname === "wheels.example.org", (route) => {
  const path = decodeURIComponent(new URL(route.request().url()).pathname.replace(/^\/+a%20b\/sub\+x\//, ""));
  const file = join(root, path === "" || path.endsWith("/") ? `${path}index.html` : path);
  return existsSync(file) ? route.fulfill({ body: readFileSync(file), contentType: "text/html" }) : route.fulfill({ status: 404 });
});
const page = await context.newPage();
const said = [];
page.on("console", (message) => said.push(message.text()));
page.on("pageerror", (error) => said.push(String(error)));

const seen = () => page.evaluate(() => {
  const answer = document.getElementById("answer");
  return {
    state: answer.dataset.state, said: answer.innerText, hash: location.hash,
    command: answer.querySelector("pre")?.textContent ?? "", chosen: document.querySelectorAll(".chosen").length,
    rows: [...document.querySelectorAll("#wheels tbody tr")].filter((row) => !row.hidden).length,
  };
});

async function open(address) {
  await page.goto("about:blank");
  await page.goto(address);
  await page.fill("#line", line);
  const found = await seen();
  await page.click("#keep");
  await page.waitForFunction(() => document.getElementById("copied").textContent);
  found.link = await page.evaluate(async () => { // without TLS there is no clipboard, and the text stands there
    const copied = document.getElementById("copied").textContent;
    return copied === "Copied." ? navigator.clipboard.readText() : copied;
  });
  await page.click("#clear");
  found.cleared = (await seen()).hash + page.url().split("#").slice(1).join();
  await page.click("#wheels tbody tr:first-child td a");
  await page.waitForLoadState();
  found.about = await page.locator(":target code").allTextContents();
  return found;
}

const places = {
  under: await open(`https://wheels.example.org${UNDER}`),
  asked: await open(`https://wheels.example.org${UNDER}index.html?version=1&x=%2B%20y`),
  slashes: await open(`https://wheels.example.org/${UNDER}`),
  secret: await open(`https://somebody:hush@wheels.example.org${UNDER}`),
  plain: await open(`http://wheels.example.org${UNDER}`),
  file: await open(pathToFileURL(join(root, "index.html")).href),
};

// What people paste has more around it; what they type is half of it at first.
await page.goto(`https://wheels.example.org${UNDER}`);
await page.fill("#line", `\`${line}\``);
const quoted = await seen();
await page.fill("#line", "");
await page.fill("#c-torch", "");
await page.focus("#c-torch");
await page.keyboard.type("2.9.0+cu130");
const cudas = await page.locator("#c-cuda option").allTextContents();
await page.selectOption("#f-fit", "fit");
await page.fill("#c-torch", "two");
const wrong = await seen();
await browser.close();
process.stdout.write(JSON.stringify({ places, quoted, cudas, wrong, said }));
