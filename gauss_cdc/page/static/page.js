"use strict";
// Draws /facts every two seconds.  Everything that comes from there is text of others: it is only
// ever set as text, and is never markup.

const MOST_TABLES = 200;
const EVERY = 2000; // milliseconds
const $ = (id) => document.getElementById(id);
const OTHER_TOKEN = "the token is another one: it was printed where the page was started";
const OLD = 20; // seconds: a place that is silent is left before
let newest = null;

function make(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fill(parent, children) {
  parent.replaceChildren(...children);
}

// What is the same stays as it is: a screen reader reads what is set, changed or not.
function say(node, text, className) {
  if (node.textContent !== text) node.textContent = text;
  if (className !== undefined && node.className !== className) node.className = className;
}

// ------------------------------------------------------------------ words for values
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const some = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

function number(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 100 ? whole.format(value) : some.format(value);
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${number(value)} ${units[at]}`;
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.9995) return `${number(value * 1000)} ms`;
  if (value < 120) return `${number(value)} s`;
  if (value < 7200) return `${number(value / 60)} min`;
  return `${number(value / 3600)} h`;
}

const ageOf = (micros, now) => (micros ? seconds(Math.max(0, now - micros / 1e6)) : "–");

// ------------------------------------------------------------------ what to do
function overall(facts) {
  const age = Date.now() / 1000 - facts.at;
  if (age > OLD) return [`the newest look is ${seconds(age)} old`, "bad"];
  const levels = facts.findings.map((one) => one.level);
  if (levels.includes("error")) return ["needs somebody", "bad"];
  if (levels.includes("warning")) return ["in doubt", "soon"];
  return ["well", "good"];
}

function finding(one) {
  const item = make("li", undefined, one.level);
  const title = make("h3", one.name);
  title.append(make("span", ` ${one.level}`, one.level === "error" ? "bad" : "soon"));
  item.append(title, make("p", one.what));
  if (one.hint) item.append(make("p", one.hint));
  item.append(make("p", one.paragraph, "quiet"));
  return item;
}

function drawFindings(facts) {
  const found = facts.findings.map(finding);
  const made = make("ul");
  fill(made, found.length ? found : [make("li", "Nothing: all places answer, and all is as it should be.")]);
  if (made.innerHTML !== $("findings").innerHTML) fill($("findings"), [...made.children]);
  const [word, className] = overall(facts);
  sayOverall(word, className, facts.source);
}

function sayOverall(word, className, source) {
  say($("overall"), word, `badge ${className}`);
  document.title = [word, source, "gauss-cdc"].filter(Boolean).join(" – ");
}

// ------------------------------------------------------------------ the way of a commit
function box(title, pairs) {
  const item = make("li");
  const list = make("dl");
  for (const [name, value] of pairs) {
    if (value !== undefined && value !== null && value !== "") {
      list.append(make("dt", name), make("dd", String(value)));
    }
  }
  item.append(make("h3", title), list);
  return item;
}

function drawWay(facts) {
  const { source, cuts, lag, down } = facts.status;
  const now = facts.at;
  const answer = (place) => (down[place] ? "does not answer" : "");
  const boxes = [
    box(`Source (${facts.kinds.source})`, [
      ["", answer("source")],
      ["log ends at", source?.wal_end],
      ["confirmed", source?.confirmed],
      ["kept for us", source && bytes(source.retained_bytes)],
      ["may grow by", source?.safe_bytes !== null && source ? bytes(source.safe_bytes) : ""],
    ]),
    box("Not in Kafka yet", [
      ["of the log", lag.csns !== null ? `${number(lag.csns)} CSNs` : bytes(lag.bytes)],
    ]),
    box("Kafka", [
      ["", answer("kafka")],
      ["newest commit", cuts && `${cuts.epoch}/${cuts.seq}`],
      ["newest cut", cuts && `${ageOf(cuts.written_at, now)} ago`],
      ["by writer", cuts?.writer],
    ]),
  ];
  const { targets } = facts.status;
  if (!targets.length) boxes.push(box("Target (none)", []));
  for (const one of targets) {
    const { target } = one;
    const name = targets.length > 1 ? ` ${one.name}` : "";
    boxes.push(
      box(`Not at the target${name} yet`, [
        ["commits", number(one.lag.commits)],
        ["lag", seconds(one.lag.seconds)],
      ]),
      box(`Target${name} (${facts.kinds.targets[one.name]})`, [
        ["", one.down.target ? "does not answer" : ""],
        ["at commit", target && `${target.epoch}/${target.seq}`],
        ["committed", target?.committed_at ? `${ageOf(target.committed_at, now)} ago` : ""],
        ["state", target?.state],
        ["not exact", target && Object.keys(target.inexact).length],
      ]),
    );
  }
  for (const one of facts.programs) boxes.push(box(one.name, [["says", one.ready], ["", one.why]]));
  fill($("way"), boxes);
}

// ------------------------------------------------------------------ charts
const ofTarget = (name) => [ // "": the only one
  [`Lag in seconds${name && `: ${name}`}`, [[`lag_seconds${name && `:${name}`}`, "behind"]], seconds],
  [`Commits a second${name && `: ${name}`}`, [["captured", "to Kafka"], [`applied${name && `:${name}`}`, "to the target"]], number],
];
const OF_ALL = [
  ["Rows a second", [["captured_rows", "run"], ["applied_rows", "apply"]], number],
  ["Age of a commit, mean", [["to_kafka", "in Kafka"], ["to_visible", "at the target"]], seconds],
];
const drawn = new Map(); // title -> [uPlot, its text]
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hourCycle: "h23" });

function options(title, lines, words, width) {
  const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
  return {
    width, height: 150, cursor: { show: false }, legend: { show: false },
    scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, 1e-3) * 1.1] } },
    axes: [{ ...axis, space: 90, values: (_, all) => all.map(clock) }, { ...axis, size: 64, values: (_, all) => all.map(words) }],
    series: [{}, ...lines.map(([, label], at) => ({
      label, width: 2, stroke: color(at ? "--second" : "--first"), points: { show: true, size: 4 }, spanGaps: true,
    }))],
  };
}

function drawChart(series, [title, lines, words]) {
  const values = lines.map(([name]) => series[name] ?? []);
  const isKnown = values.some((line) => line.some((value) => value !== null));
  if (!drawn.has(title)) {
    const place = make("div", undefined, "chart");
    const text = make("p");
    const canvas = make("div");
    canvas.setAttribute("role", "img");
    place.append(make("h3", title), text, canvas);
    $("charts").append(place);
    drawn.set(title, { place, text, canvas, plot: null });
  }
  const one = drawn.get(title);
  one.place.hidden = !isKnown;
  if (!isKnown) return;
  const now = lines.map(([, label], at) => `${label} ${words(values[at].at(-1))}`);
  one.text.replaceChildren(...now.map((said, at) => make("span", `${at ? " · " : ""}${said}`, `key ${at ? "second" : "first"}`)));
  one.canvas.setAttribute("aria-label", `${title}, now: ${now.join(", ")}`);
  if (typeof uPlot !== "function") return; // a browser that it cannot run in: the text says it
  const width = one.canvas.clientWidth;
  if (one.plot === null) one.plot = new uPlot(options(title, lines, words, width), [series.at, ...values], one.canvas);
  else { one.plot.setSize({ width, height: 150 }); one.plot.setData([series.at, ...values]); }
}

function forgetCharts() {
  for (const one of drawn.values()) { one.plot?.destroy(); one.plot = null; }
  if (newest) draw(newest);
}

// ------------------------------------------------------------------ loads
function load(one) {
  const item = make("li");
  const bar = make("progress");
  bar.setAttribute("aria-label", `Load of ${one.table}`);
  if (one.of_about) { bar.max = Math.max(one.of_about, one.rows); bar.value = one.rows; }
  const left = one.left_s === null ? "" : `, ${seconds(one.left_s)} left`;
  const about = one.of_about ? ` of about ${number(one.of_about)}` : "";
  const rate = one.rows_per_s === null ? "" : `, ${number(one.rows_per_s)} rows/s`;
  item.append(make("h3", one.table), bar, make("p", `${number(one.rows)} rows${about}${rate}${left}`, "quiet"));
  return item;
}

function drawLoads(facts) {
  const loads = facts.status.cuts?.under_way ?? [];
  const waiting = facts.status.waiting.map((line) => make("li", line));
  $("loads-section").hidden = !loads.length && !waiting.length;
  fill($("loads"), [...loads.map(load), ...waiting]);
}

// ------------------------------------------------------------------ tables
const COLUMNS = [
  ["records", "records in Kafka", number], ["bytes", "bytes in Kafka", bytes],
  ["driver", "applied by the driver", number], ["tasks", "applied by Spark's tasks", number],
  ["errors", "errors", number],
];

const rows = new Map(); // table -> its row, which stays: a button in it keeps the keyboard's focus
let columns = "";

function drawTables(facts) {
  const known = COLUMNS.filter(([name]) => facts.tables.some((row) => row[name] !== undefined));
  drawHead(["table", "state", ...known.map(([, title]) => title), ...(facts.actions ? ["actions"] : [])]);
  offerStates(facts.tables);
  const wanted = $("search").value.toLowerCase();
  const state = $("state").value;
  const found = facts.tables.filter((row) => row.table.toLowerCase().includes(wanted) && (!state || row.state === state));
  const lines = found.slice(0, MOST_TABLES).map((row) => tableRow(row, known, facts.actions));
  const place = $("tables");
  for (const line of [...place.children]) if (!lines.includes(line)) line.remove();
  for (const [at, line] of lines.entries()) {
    if (place.children[at] !== line) place.insertBefore(line, place.children[at] ?? null);
  }
  const names = new Set(facts.tables.map((row) => row.table));
  for (const name of rows.keys()) if (!names.has(name)) rows.delete(name);
  const more = found.length > MOST_TABLES ? `, the first ${MOST_TABLES} are shown` : "";
  say($("shown"), `${number(found.length)} of ${number(facts.tables.length)}${more}`);
}

function drawHead(titles) {
  if (columns === titles.join()) return;
  columns = titles.join();
  rows.clear();
  const head = make("tr");
  for (const title of titles) {
    const cell = make("th", title);
    cell.scope = "col";
    head.append(cell);
  }
  fill($("tables-head"), [head]);
}

function tableRow(row, known, hasActions) {
  if (!rows.has(row.table)) rows.set(row.table, newRow(row.table, known, hasActions));
  const { line, state, why, cells } = rows.get(row.table);
  say(state, row.state || "–", { exact: "good", "not exact": "bad", gap: "bad" }[row.state] ?? "");
  say(why, row.why ?? "");
  why.hidden = !row.why;
  for (const [at, [key, , words]] of known.entries()) say(cells[at], words(row[key]));
  return line;
}

function newRow(table, known, hasActions) {
  const line = make("tr");
  const name = make("th", table, "name");
  name.scope = "row";
  const about = make("td", undefined, "state");
  const state = make("span");
  const why = make("p", undefined, "quiet");
  about.append(state, why);
  const cells = known.map(() => make("td", undefined, "number"));
  line.append(name, about, ...cells);
  if (hasActions) {
    const cell = make("td", undefined, "actions");
    for (const [action, title] of [["read-again", "Read again"], ["verify", "Verify"]]) {
      const button = make("button", title);
      button.type = "button";
      button.setAttribute("aria-label", `${title}: ${table}`);
      button.addEventListener("click", () => act(action, [table]));
      cell.append(button);
    }
    line.append(cell);
  }
  return { line, state, why, cells };
}

function offer(select, values, first) {
  const wanted = [...first, ...values.map((value) => [value, value])];
  const there = [...select.options].map((one) => `${one.value}\n${one.textContent}`).join("\n");
  if (there === wanted.map(([value, text]) => `${value}\n${text}`).join("\n")) return;
  const chosen = select.value;
  fill(select, wanted.map(([value, text]) => { const one = make("option", text); one.value = value; return one; }));
  select.value = wanted.some(([value]) => value === chosen) ? chosen : wanted[0]?.[0] ?? "";
}

function offerStates(tables) {
  offer($("state"), [...new Set(tables.map((row) => row.state))].filter(Boolean).sort(), [["", "all"]]);
}

// ------------------------------------------------------------------ actions
async function act(action, tables) {
  const said = $("done");
  try {
    const answer = await fetch("/do", {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${$("token").value}` },
      body: JSON.stringify({ action, tables }),
    });
    const found = answer.status === 401 ? { error: OTHER_TOKEN } : await answer.json();
    said.textContent = found.done ?? found.error;
    said.className = answer.ok ? "good" : "bad";
  } catch (error) {
    said.textContent = `not asked: ${error.message}`;
    said.className = "bad";
  }
}

function drawVerified(facts) {
  $("actions-section").hidden = !facts.actions;
  const found = facts.verified ?? {};
  const lines = (found.reports ?? []).map((one) => `${one.table}: ${one.outcome}${one.why ? `: ${one.why}` : ""}`);
  if (found.is_running) lines.push("a comparison runs …");
  if (found.failed) lines.push(found.failed);
  fill($("verified"), lines.map((line) => make("li", line)));
}

// ------------------------------------------------------------------ log lines and configuration
function drawLog(facts) {
  const told = facts.programs.filter((one) => one.log.length);
  offer($("program"), told.map((one) => one.name), []);
  const chosen = told.find((one) => one.name === $("program").value);
  const text = chosen ? chosen.log.join("\n") : "No program tells its lines: start it with [serve], and name its address by --program.";
  const place = $("log");
  if (place.textContent === text) return;
  const isAtEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 8;
  place.textContent = text;
  if (isAtEnd) place.scrollTop = place.scrollHeight;
}

// ------------------------------------------------------------------ all of it
function draw(facts) {
  newest = facts;
  $("source").textContent = facts.source;
  const failed = facts.failed ? `, the last look failed: ${facts.failed}` : "";
  $("updated").textContent = `version ${facts.version}, looked at ${new Date(facts.at * 1000).toLocaleTimeString()} in ${seconds(facts.took)}${failed}`;
  drawFindings(facts);
  drawWay(facts);
  const targets = facts.status.targets.map((one) => one.name);
  const charts = (targets.length > 1 ? targets : [""]).flatMap(ofTarget);
  for (const one of [...charts, ...OF_ALL]) drawChart(facts.series, one);
  drawLoads(facts);
  drawTables(facts);
  drawVerified(facts);
  drawLog(facts);
  $("config").textContent = facts.config;
}

async function look() {
  try {
    const answer = await fetch("/facts", { cache: "no-store" });
    if (!answer.ok) throw new Error(`answer ${answer.status}`);
    const facts = await answer.json();
    if (facts.at) draw(facts);
    else say($("overall"), facts.failed ?? "looking …");
  } catch (error) {
    sayOverall(`the page's own server does not answer: ${error.message}`, "bad", newest?.source ?? "");
  }
  setTimeout(look, EVERY);
}

$("search").addEventListener("input", () => newest && drawTables(newest));
$("state").addEventListener("change", () => newest && drawTables(newest));
$("program").addEventListener("change", () => newest && drawLog(newest));
$("pause").addEventListener("click", () => act("pause", []));
$("resume").addEventListener("click", () => act("resume", []));
$("verify-all").addEventListener("click", () => act("verify", []));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forgetCharts);
look();
