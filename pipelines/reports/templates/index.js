"use strict";
// Chooses a wheel for a machine, and sorts and filters the table. What it knows stands in the table:
// its cells have the form that pipelines/publish/index/rows.py says. What it is told is text, never HTML.
(() => {
  const table = document.getElementById("wheels");
  const body = table.tBodies[0];
  const pick = (id) => document.getElementById(id);
  if (!body.rows.length) return;

  // What follows the minor release decides nothing: 2.10+cu128, 2.10.0rc1.
  const release = (said) => (/^(\d+)\.(\d+)/.exec(said) || []).slice(1).map(Number);
  const compare = (one, other) => one[0] - other[0] || one[1] - other[1];
  const words = (text) => (text === "none" ? [] : text.split(/,? /));
  const codes = (text) => text.match(/\d+\.\d[af]?/g) || [];

  const wheels = [...body.rows].map((row, place) => {
    const cell = (number) => row.cells[number].textContent.trim();
    const link = row.cells[0].querySelector("a");
    const [sass, ptx] = cell(5).split("PTX");
    return {
      row, place, link, name: link.textContent, project: link.textContent.split(" ")[0],
      file: link.pathname.split("/").pop().replace(/%2b/gi, "+"), search: row.textContent.toLowerCase(),
      pythons: cell(1), platforms: words(cell(2)), torch: cell(3), cuda: cell(4), anyCuda: "any" in row.cells[4].dataset, gpus: cell(5),
      sass: codes(sass), ptx: codes(ptx || ""), smoke: cell(6), level: cell(7), tested: row.cells[6].className === "",
      yanked: row.className === "gone", about: row.lastElementChild.querySelector("a").href,
    };
  });

  const projects = [...new Set(wheels.map((wheel) => wheel.project))];

  // The rules, those of pipelines/publish/which/choosing.py, in the order in which they are told.

  function takes(spans, python) {
    const own = release(python.replace("t", ""));
    return words(spans).some((span) => {
      const [first, last] = span.replaceAll("t", "").replace("+", "-3.999").split("-").map(release);
      return span.includes("t") === python.endsWith("t") && compare(first, own) <= 0 && compare(own, last || first) <= 0;
    });
  }

  function serves(code, gpu, ptx) {
    const [own, other] = [release(code.replace(/[af]$/, "")), release(gpu)];
    const order = compare(own, other);
    if (order === 0) return true;
    return order < 0 && !code.endsWith("a") && (own[0] === other[0] || (ptx && !code.endsWith("f")));
  }

  const natively = (wheel, gpus) => gpus.every((gpu) => wheel.sass.some((code) => serves(code, gpu)));

  function served(wheel, gpu) {
    return wheel.sass.some((code) => serves(code, gpu)) || wheel.ptx.some((code) => serves(code, gpu, true));
  }

  // Of the rules that a wheel breaks on a machine, name and words. What was not said breaks none.
  function missed(wheel, machine) {
    const found = [];
    const { platform, python, torch, cuda, driver, gpus } = machine;
    const need = wheel.cuda === "none" ? null : release(wheel.cuda);
    if (platform !== undefined && !wheel.platforms.some((one) => one === platform || one === "any"))
      found.push(["platform", `it is for ${wheel.platforms.join(", ")}, but this is ${platform}`]);
    if (python !== undefined && !takes(wheel.pythons, python))
      found.push(["python", `it is for Python ${wheel.pythons}, but this is ${python}`]);
    if (torch !== undefined && wheel.torch !== "none") {
      const [own, order] = [wheel.torch.replace("+", ""), torch && compare(release(wheel.torch.replace("+", "")), release(torch))];
      if (torch === "") found.push(["torch", `it was built for torch ${own}, but there is no torch`]);
      else if (order > 0 || (order < 0 && !wheel.torch.endsWith("+")))
        found.push(["torch", `it was built for torch ${own}, but this is ${torch}`]);
      if (torch && cuda !== undefined && need) {
        if (cuda === "") found.push(["cuda", `it was built with CUDA ${wheel.cuda}, but this torch is a CPU build`]);
        else if (!wheel.anyCuda && (need[0] !== release(cuda)[0] || compare(need, release(cuda)) > 0))
          found.push(["cuda", `it was built with CUDA ${wheel.cuda}, but this torch with ${cuda}`]);
      }
    }
    const jit = gpus !== undefined && gpus.length > 0 && !natively(wheel, gpus) && gpus.every((gpu) => served(wheel, gpu));
    if (driver !== undefined && need) {
      if (driver === "") found.push(["driver", "it needs NVIDIA's driver, but there is none"]);
      else if (need[0] > release(driver)[0] || (jit && compare(need, release(driver)) > 0))
        found.push(["driver", `it was built with CUDA ${wheel.cuda}${jit ? " and the driver has to compile its PTX" : ""}, but the driver is for CUDA ${driver}`]);
    }
    if (gpus !== undefined) {
      const missing = gpus.filter((gpu) => !served(wheel, gpu));
      if (!gpus.length) found.push(["gpu", "it needs an NVIDIA GPU, but there is none"]);
      else if (missing.length) found.push(["gpu", `it has code for ${wheel.gpus}, which does not run on ${missing.join(" and ")}`]);
    }
    return found;
  }

  // Of those that fit the one to take, or the nearest; rows stand in the order of the last ranks.
  function choose(machine) {
    const ranked = wheels
      .filter((wheel) => !wheel.yanked && wheel.project === machine.package)
      .map((wheel) => {
        const miss = missed(wheel, machine);
        const gpus = machine.gpus || [];
        return { wheel, miss, native: gpus.length > 0 && natively(wheel, gpus) };
      });
    ranked.sort((one, other) =>
      one.miss.length - other.miss.length || other.native - one.native ||
      other.wheel.tested - one.wheel.tested || one.wheel.place - other.wheel.place);
    return ranked[0];
  }

  // What is said of a machine: its fields on the page, and the line in which they are written.

  // Those of pipelines/publish/which/machine.py, which prints the line, and the package. A release of CUDA is
  // narrower here: people type the driver's own version, 580.88, which would be newer than any.
  const KEYS = ["platform", "python", "torch", "cuda", "driver", "gpu", "package"];
  const FORMS = {
    platform: /^[a-z][a-z0-9_]{0,60}$/, python: /^\d{1,2}\.\d{1,2}t?$/, torch: /^(\d{1,4}\.\d{1,4}[\w.+-]{0,60})?$/,
    cuda: /^(\d{1,2}\.\d{1,2})?$/, driver: /^(\d{1,2}\.\d{1,2})?$/, gpu: /^(\d{1,2}\.\d(,\d{1,2}\.\d){0,63})?$/,
  };
  const TITLES = { package: "package", platform: "platform", python: "Python", torch: "torch", cuda: "torch's CUDA", driver: "CUDA from nvidia-smi", gpu: "GPU" };
  const EXAMPLES = { platform: "win_amd64", python: "3.12", torch: "2.8.0+cu128", cuda: "12.8", driver: "12.9", gpu: "8.9" };
  const PREFIX = "wcw1:";
  const CUDA_OF = /\+cu(\d\d)(\d)$/; // as torch's wheels are called; half of it, while somebody types, is none
  const field = (key) => pick(`c-${key}`);

  function parse(line) {
    const found = new URLSearchParams(line.slice(PREFIX.length));
    const machine = {};
    for (const key of KEYS) {
      const values = found.getAll(key);
      if (!values.length) continue;
      const good = key === "package" ? projects.includes(values[0]) : FORMS[key].test(values[0]);
      if (values.length > 1) throw new Error(`${key} is given ${values.length} times`);
      if (!good) throw new Error(`${key}: ${JSON.stringify(values[0].slice(0, 60))} ${key === "package" ? "is not in this index" : `is invalid; example: ${EXAMPLES[key]}`}`);
      machine[key] = values[0];
    }
    return machine;
  }

  // Of two options with one value the last is meant: a capability is no card of that name.
  function set(key, value) {
    const own = field(key);
    if (!own.options) own.value = value;
    else {
      if (![...own.options].some((one) => one.value === value)) own.add(new Option(value.replace(/,/g, " and "), value));
      [...own.options].reverse().find((one) => one.value === value).selected = true;
    }
  }

  function fill(machine) {
    for (const key of KEYS) {
      if (key === "package" && machine[key] === undefined) continue; // it is no machine's: it stays
      set(key, machine[key] === undefined ? "" : machine[key] || "none");
    }
  }

  function read() {
    const machine = {};
    for (const key of KEYS) {
      const said = field(key).value.trim();
      if (said === "") continue;
      machine[key] = said === "none" && key !== "package" ? "" : said;
      if (key === "package") continue;
      if (!FORMS[key].test(machine[key])) throw new Error(`${TITLES[key]}: ${JSON.stringify(said)} is invalid; example: ${EXAMPLES[key]}${key === "driver" ? " (CUDA, not the version of the driver itself)" : ""}`);
    }
    if (machine.gpu !== undefined) machine.gpus = machine.gpu ? machine.gpu.split(",") : [];
    return machine;
  }

  function written(machine) {
    const said = new URLSearchParams();
    for (const key of KEYS) if (machine[key] !== undefined) said.set(key, machine[key]);
    return PREFIX + said;
  }

  // What is answered.

  const answer = pick("answer");
  const made = (name, text, ...inside) => {
    const element = document.createElement(name);
    element.append(...(text === "" ? [] : [text]), ...inside);
    return element;
  };

  // Whatever is said takes back what was said before.
  function say(state, title, ...rest) {
    answer.className = `answer ${state}`;
    for (const key of Object.keys(answer.dataset)) delete answer.dataset[key];
    answer.dataset.state = state;
    answer.replaceChildren(made("h3", title), ...rest);
    pick("copy").hidden = !answer.querySelector("pre");
    for (const { row } of wheels) row.classList.remove("chosen");
  }

  // Without the password that somebody has opened this page with: what is copied is passed on.
  function bare(href) {
    try {
      const url = new URL(href);
      url.username = url.password = "";
      return url.href;
    } catch {
      return ""; // an address that is none
    }
  }

  // As pipelines/publish/which/answer.py writes it; here is put in what was chosen.
  function command(wheel, machine) {
    const [url, index] = [wheel.link.href, new URL("plain/", location.href).href].map((one) => bare(one).replace(/!/g, "%21"));
    // Within quotes a terminal still reads some characters; no address of a wheel has them.
    if ([url, index].some((one) => !one || /[^\w.~%+/:@=#-]/.test(one))) return null;
    const start = field("start").value === "py" ? `py -${machine.python}` : field("start").value;
    const said = { ...wheel, url, index, start, torch: machine.torch, version: wheel.file.split("-")[1] };
    const { text, swap, by } = field("form").selectedOptions[0].dataset;
    const filled = (said.torch ? text : text.replaceAll(' "torch==~torch~"', "")).replace(/~(\w+)~/g, (_, key) => said[key]);
    return swap ? filled.replaceAll(swap, by) : filled;
  }

  function verdicts(wheel) {
    const link = made("a", "test evidence");
    link.href = wheel.about;
    return made("p", `${wheel.smoke}; level ${wheel.level}; `, link, ".");
  }

  function ask(machine, missing) {
    if (missing.length >= KEYS.length - 1) return say("ask", "Describe your machine to get the install command");
    if (missing.join() !== "package") return say("ask", `Still missing: ${missing.map((key) => TITLES[key]).join(", ")}`);
    const found = projects.map((one) => {
      const best = choose({ ...machine, package: one });
      return made("li", best && !best.miss.length ? best.wheel.name : `${one}: nothing fits`);
    });
    return say("ask", "Which package? These would fit:", made("ul", "", ...found));
  }

  function tell(machine) {
    const missing = KEYS.filter((key) => machine[key] === undefined);
    if (machine.package === undefined) return ask(machine, missing);
    const best = choose(machine);
    if (!best) return say("none", `All wheels of ${machine.package} were yanked`);
    const { wheel, miss, native } = best;
    if (miss.length) {
      const list = made("ul", "", ...miss.map(([, text]) => made("li", text)));
      say("none", `No wheel of ${machine.package} here fits this machine`, made("p", `The nearest is ${wheel.name}, but:`), list, verdicts(wheel));
      return Object.assign(answer.dataset, { file: wheel.file, missed: miss.map(([rule]) => rule).join(" ") });
    }
    if (missing.length) return ask(machine, missing);
    const typed = command(wheel, machine);
    if (typed === null) return say("wrong", "The address of the wheel cannot be pasted into a terminal", made("p", "Download the wheel from the table and install the file."));
    const notes = [];
    const local = CUDA_OF.exec(machine.torch);
    if (local && `${local[1]}.${local[2]}` !== machine.cuda) notes.push(`The version of this torch ends with ${local[0]}, but the chosen CUDA is ${machine.cuda || "none"}: one of them is wrong.`);
    if (!native) notes.push("It has no machine code for this GPU: the driver compiles its PTX on first use, which takes a while.");
    if (machine.torch && !machine.torch.includes("+")) notes.push("This torch version names no CUDA. Check that pip list shows exactly that: pip would replace any other torch, perhaps with a CPU build.");
    const pre = made("pre", "", made("code", typed));
    pre.tabIndex = 0;
    say(notes.length || !wheel.tested ? "mind" : "fits", wheel.name, pre, ...notes.map((text) => made("p", text)), verdicts(wheel));
    answer.dataset.file = wheel.file;
    return wheel.row.classList.add("chosen");
  }

  function update() {
    let machine = null;
    pick("copied").textContent = "";
    try {
      machine = read();
      tell(machine);
    } catch (error) {
      say("wrong", "Invalid input", made("p", error.message));
    }
    keep(machine);
    filter(machine);
  }

  // The address has what is chosen, and nothing that was chosen before.
  function keep(machine) {
    const said = machine !== null && KEYS.some((key) => key !== "package" && key in machine);
    if (said) history.replaceState(null, "", `#${written(machine)}`);
    else if (location.hash.startsWith(`#${PREFIX}`)) history.replaceState(null, "", `./${location.pathname.split("/").pop()}${location.search}`);
  }

  function take(line) {
    try {
      fill(parse(line));
    } catch (error) {
      fill({});
      update();
      return say("wrong", "Invalid line", made("p", error.message));
    }
    return update();
  }

  async function copy(text, source) {
    try {
      await navigator.clipboard.writeText(text);
      pick("copied").textContent = "Copied.";
    } catch {
      // Only pages by https may write to it: https://w3c.github.io/clipboard-apis/#privacy-async
      if (source) getSelection().selectAllChildren(source);
      pick("copied").textContent = source && document.execCommand("copy") ? "Copied." : source ? "Selected: copy it with Ctrl+C." : text;
    }
  }

  function filter(machine) {
    const asked = pick("f-text").value.trim().toLowerCase();
    const fitting = pick("f-fit").value !== "";
    let count = 0;
    for (const wheel of wheels) {
      const fits = !fitting || (machine !== null && !wheel.yanked && [undefined, wheel.project].includes(machine.package) && !missed(wheel, machine).length);
      wheel.row.hidden = !fits || !wheel.search.includes(asked);
      count += wheel.row.hidden ? 0 : 1;
    }
    pick("f-count").value = `${count} of ${wheels.length} shown`;
  }

  function sort(head) {
    const column = [...head.parentElement.cells].indexOf(head);
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const order = new Intl.Collator("en", { numeric: true });
    const key = (wheel) => wheel.row.cells[column].textContent;
    body.append(...[...wheels].sort((one, other) => (up ? 1 : -1) * order.compare(key(one), key(other))).map(({ row }) => row));
  }

  for (const head of [...table.tHead.rows[0].cells].slice(0, -1)) {
    const button = made("button", head.textContent);
    button.type = "button";
    head.replaceChildren(button);
    button.addEventListener("click", () => sort(head));
  }
  for (const key of [...KEYS, "start", "form"]) field(key).addEventListener("input", update);
  field("torch").addEventListener("input", () => {
    const said = field("torch").value.trim();
    const local = CUDA_OF.exec(said);
    if (!local && said !== "none" && !said.endsWith("+cpu")) return;
    set("cuda", local ? `${local[1]}.${local[2]}` : "none");
    update();
  });
  pick("line").addEventListener("input", () => {
    const line = /wcw1:[\w.~%&=+,-]*/.exec(pick("line").value);
    if (line) take(line[0]);
    else if (pick("line").value.trim()) say("wrong", "Invalid line", made("p", `It must begin with ${PREFIX}`));
    else update();
  });
  pick("copy").addEventListener("click", () => copy(answer.querySelector("pre").textContent, answer.querySelector("pre")));
  pick("keep").addEventListener("click", () => copy(bare(location.href), null));
  pick("clear").addEventListener("click", () => {
    fill({});
    pick("line").value = "";
    update();
  });
  for (const id of ["f-text", "f-fit"]) pick(id).addEventListener("input", () => {
    try { filter(read()); } catch { filter(null); }
  });
  const opened = () => (location.hash.startsWith(`#${PREFIX}`) ? take(location.hash.slice(1)) : update());
  addEventListener("hashchange", opened);
  pick("chooser").hidden = pick("controls").hidden = false;
  opened();
})();
