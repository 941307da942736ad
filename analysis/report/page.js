"use strict";
// Sorting of the tables, the list of all runs, a single run, and the look whether the page was written anew. No library: the
// data come from the scripts in runs/, each of which calls sweep(name, value).
const waiting = {}, PAGE = 100;
let runs = null, chosen = [], page = 0, names = new Set(), unknown = [], order = { name: "finished", up: false };

function sweep(name, value) {
  if (name === "runs") { runs = value; begin(); } else if (waiting[name]) { waiting[name](value); delete waiting[name]; }
}

function load(file, name) {
  return new Promise((resolve, reject) => {
    waiting[name] = resolve;
    const script = document.createElement("script");
    script.src = file;
    script.onload = () => script.remove();
    script.onerror = () => { script.remove(); reject(new Error(`${file} cannot be read`)); };
    document.head.append(script);
  });
}

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// Numbers as the page's other tables have them, times in units that a person uses; an accuracy is rounded down, so that none that
// misses its target reads as if it met it. The name is that of a column of this page: of what a user named there is none. Whole
// numbers that are too large for a number of a browser come as texts.
function shown(value, name) {
  if (value === null || value === undefined) return "";
  if (name === "finished") return new Date(1000 * value).toISOString().slice(0, 16).replace("T", " ") + " UTC";
  if (name === "seconds") return value < 60 ? `${value.toPrecision(2)} s` : value < 3600 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(1)} h`;
  if (name === "accuracy" && value >= 0.001 && value < 1) return String(Math.floor(1e4 * value + 1e-6) / 1e4);
  if (typeof value !== "number") return String(value);
  if (Number.isSafeInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size >= 1e-4 && size < 1e5 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
}

// ------------------------------------------------------------------ sorting of small tables

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = element("button", head.textContent, { type: "button" });
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(one => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].map(row => [row.cells[column].textContent.trim(), row]);
      const number = text => Number(text.replace(/,/g, "").replace(/^(-?)inf$/, "$1Infinity") || NaN);
      const numeric = rows.every(([text]) => text === "" || !Number.isNaN(number(text)));
      rows.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");
        return (up ? 1 : -1) * (numeric ? (number(a) > number(b)) - (number(a) < number(b)) : a.localeCompare(b));
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}
document.querySelectorAll("table.sortable").forEach(sortable);

// ------------------------------------------------------------------ all runs

const COLUMNS = ["key", "status", "task", "dataset", "decoder", "N", "data_count", "seed", "settings", "accuracy", "id_mse", "ood_mse", "steps", "seconds", "finished"];
const CURVES = ["accuracy", "error", "loss"];
const NAMES = { reason: "ended by", passage_step: "passed at step", pack_size: "trained together", fixed_count: "always present", loss: "training loss", error: "error on what is held out", accuracy: "accuracy on what is held out", key: "run", data_count: "data", id_mse: "ID MSE", ood_mse: "OOD MSE", seconds: "time", finished: "ended" };
const HEADS = { ...NAMES, accuracy: "accuracy", finished: "ended (UTC)" };
const at = id => document.getElementById(id);

function value(name, i) {
  if (name === "key") return runs.keys[i];
  if (runs.texts[name]) return runs.texts[name].words[runs.texts[name].of[i]];
  return runs.numbers[name] ? runs.numbers[name][i] : undefined;
}

// Columns that say something: a text that is the same for all runs, or numbers that no run has, are left out.
function columns() {
  return COLUMNS.filter(name => name === "key" || name === "status" || (runs.texts[name] ? runs.texts[name].words.length > 1 : runs.numbers[name].some(one => one !== null)));
}

function begin() {
  const list = at("list");
  if (!list) return;
  names = new Set([...COLUMNS, ...runs.texts.settings.words.flatMap(text => text.split(", ").map(one => one.split(" ")[0]))]);
  list.hidden = document.querySelector("form.tools").hidden = false;
  const row = element("tr");
  for (const name of columns()) {
    const head = element("th", null, { scope: "col" }), button = element("button", HEADS[name] || name, { type: "button" });
    if (!runs.texts[name] && name !== "key") head.className = "n";
    button.addEventListener("click", () => { order = { name, up: order.name === name ? !order.up : true }; select(); });
    head.dataset.name = name;
    head.append(button);
    row.append(head);
  }
  list.tHead.replaceChildren(row);
  at("status").append(...runs.texts.status.words.slice().sort().map(word => element("option", word)));
  for (const id of ["search", "of", "status"]) at(id).addEventListener("input", () => { page = 0; select(); });
  at("before").addEventListener("click", () => { page -= 1; list_(); });
  at("after").addEventListener("click", () => { page += 1; list_(); });
  document.querySelector("form.tools").addEventListener("submit", event => event.preventDefault());
  addEventListener("hashchange", follow);
  select();
  follow();
}

// A word is looked for in all texts; NAME=VALUE, NAME>VALUE, NAME<VALUE are conditions on one column or setting.
function condition(word) {
  const parts = /^(\w+)(<=|>=|=|<|>)(.+)$/.exec(word);
  const low = word.toLowerCase();
  if (!parts) return i => COLUMNS.some(name => { const one = value(name, i); return typeof one === "string" && one.toLowerCase().includes(low); });
  const [, name, sign, wanted] = parts, bound = Number(wanted);
  const compare = { "=": (a, b) => a === b, "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b }[sign];
  return i => {
    let found = value(name, i);
    if (found === undefined) found = (value("settings", i).split(", ").find(one => one.startsWith(name + " ")) || "").slice(name.length + 1);
    if (found === null || found === "") return false;
    if (sign === "=" && /^-?\d{16,}$/.test(found)) return String(found) === wanted;
    return Number.isNaN(bound) ? sign === "=" && String(found).toLowerCase() === wanted.toLowerCase() : compare(Number(found), bound);
  };
}

function select() {
  const words = at("search").value.trim().replace(/\s*(<=|>=|=|<|>)\s*/g, "$1").split(/\s+/).filter(Boolean);
  const tests = words.map(condition);
  unknown = words.map(word => /^(\w+)[<>=]/.exec(word)?.[1]).filter(name => name && !names.has(name));
  const study = runs.studies.indexOf(at("of").value), status = at("status").value;
  if (at("of").value) tests.push(i => runs.of[i].includes(study));
  if (status) tests.push(i => value("status", i) === status);
  chosen = [];
  for (let i = 0; i < runs.keys.length; i++) if (tests.every(test => test(i))) chosen.push(i);
  const sign = order.up ? 1 : -1, numeric = !runs.texts[order.name] && order.name !== "key", empty = one => one === null || one === undefined || one === "";
  const of = chosen.map(i => [value(order.name, i), i]);
  of.sort(([a, i], [b, j]) => {
    if (empty(a) || empty(b)) return empty(a) - empty(b) || i - j;
    return sign * (numeric ? a - b : a < b ? -1 : a > b ? 1 : 0) || i - j;
  });
  chosen = of.map(([, i]) => i);
  list_();
}

function list_() {
  const pages = Math.max(1, Math.ceil(chosen.length / PAGE)), shownColumns = columns();
  page = Math.min(Math.max(page, 0), pages - 1);
  const part = chosen.slice(page * PAGE, (page + 1) * PAGE);
  at("list").tBodies[0].replaceChildren(...part.map(i => {
    const row = element("tr");
    for (const name of shownColumns) {
      const cell = element("td");
      if (name === "key") cell.append(element("a", runs.keys[i].slice(0, 10), { href: "#run=" + runs.keys[i] }));
      else {
        const text = shown(value(name, i), name).replace(/ UTC$/, "");
        cell.textContent = name === "task" ? text.split(":").at(-1) : text;
        if (!runs.texts[name]) cell.className = "n";
        if (runs.texts[name] && name !== "status") { cell.className = "settings-of"; cell.title = text; }
      }
      row.append(cell);
    }
    return row;
  }));
  for (const head of at("list").tHead.rows[0].cells) {
    if (head.dataset.name === order.name) head.setAttribute("aria-sort", order.up ? "ascending" : "descending"); else head.removeAttribute("aria-sort");
  }
  at("before").disabled = page === 0;
  at("after").disabled = page === pages - 1;
  const few = chosen.length === runs.keys.length ? "" : ` of ${runs.keys.length.toLocaleString("en")}`;
  const why = unknown.length ? `No run has ${unknown.join(", ")}. Known are ${[...names].filter(Boolean).join(", ")}.` : chosen.length ? "" : "No run matches.";
  at("counted").textContent = why || `${chosen.length.toLocaleString("en")}${few} ${runs.keys.length === 1 ? "run" : "runs"}` + (pages > 1 ? `, page ${page + 1} of ${pages}` : "") + ".";
}

// ------------------------------------------------------------------ one run

async function follow() {
  const run = /^#run=(\w+)$/.exec(location.hash), study = /^#runs\?study=([\w-]+)$/.exec(location.hash);
  if (study) { at("of").value = study[1]; page = 0; select(); at("runs").scrollIntoView(); }
  if (!run) return;
  const box = at("run"), i = runs.keys.indexOf(run[1]);
  box.hidden = at("back").hidden = false;
  if (i < 0) { box.replaceChildren(element("p", `The store has no run ${run[1]}.`)); return; }
  const number = Math.floor(i / runs.chunk), name = `runs/${number}`;
  try {
    const { shared, runs: all } = await load(`${name}.js`, name), found = all.find(one => one.key === run[1]);
    if (!found) throw new Error("This page was written anew since it was opened. Reload it to see this run.");
    box.replaceChildren(...told(i, { ...found, settings: shared[found.settings], known: { ...found.own, ...shared[found.known] } }));
  } catch (error) { box.replaceChildren(element("p", error.message)); }
  box.scrollIntoView({ block: "nearest" });
  box.focus({ preventScroll: true });
}

// `isOwn`: the names are those of columns of this page, and not of settings or measures, which any user may have given.
function listed(title, values, isOwn = false) {
  const entries = Object.entries(values).filter(([, one]) => one !== null && one !== "");
  if (!entries.length) return [];
  const list = element("dl");
  for (const [name, one] of entries) list.append(element("dt", isOwn && NAMES[name] || name), element("dd", typeof one === "object" ? JSON.stringify(one) : shown(one, isOwn && name)));
  return [element("h3", title), list];
}

// A word as a POSIX shell reads it.
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\"'\"'") + "'";
}

function told(i, found) {
  const own = Object.fromEntries(COLUMNS.filter(name => name !== "settings").map(name => [name, value(name, i)]));
  const parts = [element("h3", `Run ${runs.keys[i]}`), ...listed("How it ended", own, true).slice(1)];
  if (found.error) { parts.push(element("h3", "What it said")); parts.push(element("pre", found.error, { tabindex: "0" })); }
  const numbers = text => text.split(" ").map(one => Number.isFinite(Number(one)) ? Number(one) : null);
  for (const [name, text] of Object.entries(found.curves)) if (name !== "step") parts.push(...curve(name, numbers(found.curves.step), numbers(text)));
  parts.push(...listed("Its settings", found.settings), ...listed("What was measured", found.measures), ...listed("How it was trained", found.known, true));
  const parents = Object.entries(found.parents);
  if (parents.length) {
    const line = element("p", "It needed ");
    parents.forEach(([name, key], place) => line.append(place ? ", " : "", `${name} `, element("a", key.slice(0, 10), { href: "#run=" + key })));
    parts.push(element("h3", "What it needed"), line);
  }
  const again = element("p", "This command trains it again, alone, and says whether it ends the same: ");
  const task = value("task", i), named = runs.built_in.includes(task) || !/^[\w.]+:\w+$/.test(task) ? "" : ` --task ${task}`;
  again.append(element("code", `python -m orchestrator.again ${runs.keys[i]} --store ${quoted(document.documentElement.dataset.store)}${named}`));
  parts.push(again);
  if (named) parts.push(element("p", "It runs a task that this store names: look at it first if the store is not yours."));
  return parts;
}

function curve(name, steps, values) {
  const column = CURVES.includes(name) && name;
  const known = values.map((one, i) => [steps[i], one]).filter(([, one]) => one !== null);
  if (known.length < 2) return [];
  const numbers = known.map(([, one]) => one), logs = name !== "accuracy" && Math.min(...numbers) > 0 && Math.max(...numbers) > 20 * Math.min(...numbers);
  const scale = one => logs ? Math.log10(one) : one, ends = [Math.min(...numbers), Math.max(...numbers)];
  const low = scale(ends[0]), high = scale(ends[1]) === low ? low + 1 : scale(ends[1]);
  const x = one => 60 + 410 * (one - known[0][0]) / (known.at(-1)[0] - known[0][0] || 1), y = one => 110 - 95 * (scale(one) - low) / (high - low);
  const space = "http://www.w3.org/2000/svg", picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", "0 0 480 135");
  picture.setAttribute("class", "curve");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `${name} from ${shown(numbers[0], column)} at step ${known[0][0]} to ${shown(numbers.at(-1), column)} at step ${known.at(-1)[0]}`);
  const put = (tag, attributes, text) => {
    const made = document.createElementNS(space, tag);
    for (const [key, one] of Object.entries(attributes)) made.setAttribute(key, one);
    if (text !== undefined) made.textContent = text;
    picture.append(made);
  };
  put("line", { x1: 60, x2: 470, y1: 110, y2: 110 });
  put("polyline", { points: known.map(([step, one]) => `${x(step).toFixed(1)},${y(one).toFixed(1)}`).join(" ") });
  put("text", { x: 55, y: 19, "text-anchor": "end" }, shown(ends[1], column));
  put("text", { x: 55, y: 113, "text-anchor": "end" }, shown(ends[0], column));
  put("text", { x: 60, y: 128 }, shown(known[0][0]));
  put("text", { x: 470, y: 128, "text-anchor": "end" }, `step ${shown(known.at(-1)[0])}`);
  return [element("h3", (column && NAMES[column] || name.replace(/_/g, " ")) + (logs ? ", on a logarithmic scale" : "")), picture];
}

// ------------------------------------------------------------------ printing shows what is folded

let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded.push(...document.querySelectorAll("details:not([open])"));
  unfolded.forEach(part => { part.open = true; });
});
addEventListener("afterprint", () => { unfolded.forEach(part => { part.open = false; }); unfolded = []; });

// ------------------------------------------------------------------ a page that follows a study

const root = document.documentElement.dataset;
if (root.every) setInterval(async () => {
  try {
    const stamp = await load(`stamp.js?${Date.now()}`, "stamp");
    if (stamp !== root.stamp) location.reload();
  } catch (error) { /* looked for again a little later */ }
}, 1000 * Number(root.every));
