"use strict";
// Sorts and filters the table of wheels; without it the page shows all of them, in their order.
(() => {
  const table = document.getElementById("board");
  const controls = document.getElementById("controls");
  if (!table || !controls) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const pick = (id) => document.getElementById(id);
  const [text, gpu, fate, torch, python, level] =
    ["f-text", "f-gpu", "f-fate", "f-torch", "f-python", "f-level"].map(pick);
  const fates = { native: ["native"], runs: ["native", "jit"], fails: ["partly", "no"] };
  const words = (row, name) => (row.dataset[name] || "").split(" ");

  const minor = (release) => Number(release.replace("+", "").split(".")[1]);
  const takes = (tag, release) =>
    tag === "any" || tag === release || (tag.endsWith("+") && minor(tag) <= minor(release));

  function kept(row) {
    if (text.value && !row.dataset.text.includes(text.value.trim().toLowerCase())) return false;
    if (level.value && row.dataset.level !== level.value) return false;
    if (python.value && !words(row, "python").some((one) => takes(one, python.value))) return false;
    if (torch && torch.value && !row.dataset.torch.split("|").includes(torch.value)) return false;
    if (!fate.value) return true;
    const own = JSON.parse(row.dataset.gpus);
    const asked = gpu.value ? [own[gpu.value]] : Object.values(own);
    return asked.some((one) => fates[fate.value].includes(one));
  }

  function filter() {
    let count = 0;
    for (const row of rows) {
      row.hidden = !kept(row);
      const article = document.getElementById(row.dataset.article);
      if (article) article.hidden = row.hidden;
      count += row.hidden ? 0 : 1;
    }
    pick("f-count").value = `${count} of ${rows.length} shown`;
    for (const cell of table.querySelectorAll("[data-gpu]"))
      cell.classList.toggle("marked", gpu.value !== "" && cell.dataset.gpu === gpu.value);
  }

  function sort(head) {
    const column = [...head.parentElement.cells].indexOf(head);
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
    const order = new Intl.Collator("en", { numeric: true });
    rows.sort((one, other) => (up ? 1 : -1) * order.compare(key(one), key(other)));
    body.append(...rows);
  }

  for (const head of table.tHead.querySelectorAll("th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sort(head));
  }
  for (const one of controls.querySelectorAll("input, select")) one.addEventListener("input", filter);
  gpu.addEventListener("input", () => { if (gpu.value && !fate.value) { fate.value = "runs"; filter(); } });
  controls.hidden = false;
  filter();
})();
