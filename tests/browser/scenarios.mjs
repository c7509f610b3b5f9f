// What people do with the page, in a real browser; `node scenarios.mjs NAME ADDRESS` runs one.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../../service/portal/web/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const axeSource = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const [, , name, base] = process.argv;
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
const QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync"];
const LLAMA = {
  model: { id: "meta-llama/Llama-3.1-8B-Instruct" },
  hardware: { gpu: "H100-SXM5-80GB" },
  workload: { preset: "chat" },
};
const QWEN = {
  model: { id: "Qwen/Qwen3-32B" },
  hardware: { gpu: "A100-SXM4-80GB", gpus_per_node: 8 },
  workload: { preset: "chat", arrivals: { kind: "users", users: 2000 } },
  labels: { team: "search" },
};
const CPU = {
  model: { id: "Qwen/Qwen3-0.6B" },
  hardware: { gpu: "cpu", host_memory_gib: 16 },
  workload: { preset: "chat", arrivals: { kind: "closed_loop", max_concurrency: 4 } },
};
const TOO_LARGE = {
  model: { id: "meta-llama/Llama-3.1-70B-Instruct" },
  hardware: { gpu: "A100-SXM4-80GB" },
  workload: { preset: "chat" },
};

/** Many findings, with long words in them. */
const GPT_OSS = {
  model: { id: "openai/gpt-oss-120b" },
  hardware: { gpu: "H100-SXM5-80GB", gpus_per_node: 8 },
  workload: { preset: "reasoning" },
};

async function ask(request) {
  const response = await fetch(`${base}/recommendations`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(request),
  });
  assert.equal(response.status, 201);
  return await response.json();
}

/** Opens a page that notes every error, and every request that leaves the service. */
async function open(browser, { hash = "#/", ...options } = {}) {
  const context = await browser.newContext({ acceptDownloads: true, ...options });
  const page = await context.newPage();
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(error.message));
  page.on("console", (message) => {
    const text = message.text();
    if (message.type() === "error" && !text.includes("status of 4")) page.faults.push(text);
  });
  page.on("request", (request) => {
    const own = [base, "blob:", "data:"].some((start) => request.url().startsWith(start));
    if (!own) page.faults.push(`asks ${request.url()}`);
  });
  await page.goto(`${base}/${hash}`);
  await page.waitForLoadState("networkidle");
  return page;
}

async function go(page, hash) {
  await page.evaluate((to) => (location.hash = to), hash);
  await page.waitForLoadState("networkidle");
  await page.waitForFunction(() => !document.querySelector(".waiting"));
}

/** Returns what axe finds in the page as it is, everything unfolded. */
async function violations(page) {
  await page.evaluate(() => document.querySelectorAll("main details").forEach((one) => (one.open = true)));
  await page.evaluate(axeSource);
  const found = await page.evaluate(async () => (await window.axe.run(document)).violations);
  return found.map(
    ({ id, impact, nodes }) =>
      `${impact} ${id}: ${nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`)}`,
  );
}

/** Returns by how many pixels the page is wider than its window. */
async function excess(page) {
  await page.evaluate(() => document.querySelectorAll("main details").forEach((one) => (one.open = true)));
  return await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}

async function views() {
  const [good, large, other] = [await ask(LLAMA), await ask(TOO_LARGE), await ask(QWEN)];
  const wordy = await ask(GPT_OSS);
  const tabs = ["", "/settings", "/what-if", "/files", "/proof", "/watch"];
  return [
    "#/",
    `#/?from=${other.id}`,
    ...tabs.map((tab) => `#/r/${other.id}${tab}`),
    `#/r/${good.id}`,
    `#/r/${large.id}`,
    `#/r/${wordy.id}`,
    `#/r/${wordy.id}/what-if`,
    "#/history",
    `#/compare?a=${good.id}&b=${other.id}`,
    "#/workers",
    "#/r/none",
  ];
}

const scenarios = {
  /** From the empty form to a compose file on disk. */
  async "from-the-empty-form-to-a-compose-file"(browser) {
    const page = await open(browser);
    await page.getByLabel("Model", { exact: true }).fill("llama-3.1-8b-inst");
    await page.getByRole("option", { name: /meta-llama\/Llama-3\.1-8B-Instruct/ }).click();
    await page.getByLabel("GPU", { exact: true }).fill("h100 sxm");
    await page.getByRole("option", { name: /^H100-SXM5-80GB/ }).click();
    await page.getByRole("radio", { name: "Users" }).check();
    await page.getByLabel("Number of users").fill("500");
    await page.getByRole("button", { name: "Get settings" }).click();
    await page.getByRole("heading", { level: 1, name: /Llama-3.1-8B-Instruct on 1 × H100/ }).waitFor();

    const saving = page.waitForEvent("download");
    await page.getByRole("button", { name: "Download compose.yaml" }).click();
    const file = await saving;

    const id = new URL(page.url()).hash.split("/")[2];
    const record = await (await fetch(`${base}/recommendations/${id}`)).json();
    const compose = record.files.find((item) => item.path === "compose.yaml").content;
    assert.equal(file.suggestedFilename(), "compose.yaml");
    assert.equal(readFileSync(await file.path(), "utf8"), compose);
    assert.deepEqual(record.request.hardware, { gpu: "H100-SXM5-80GB", gpus_per_node: 1 });
    assert.match(record.request.assumptions.join(" "), /500 users/);
    return page;
  },

  /** The same without a mouse. */
  async "with-the-keyboard-alone"(browser) {
    const page = await open(browser);
    const focus = async (wanted) => {
      for (let press = 0; press < 60; press += 1) {
        const label = await page.evaluate(() => {
          const at = document.activeElement;
          return at?.labels?.[0]?.textContent || at?.getAttribute("aria-label") || at?.textContent || "";
        });
        if (wanted.test(label)) return;
        await page.keyboard.press("Tab");
      }
      assert.fail(`no way by Tab to ${wanted}`);
    };
    await focus(/^Model$/);
    await page.keyboard.type("qwen3-32b");
    await page.getByRole("option", { name: /Qwen\/Qwen3-32B/ }).first().waitFor();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await focus(/^GPU$/);
    await page.keyboard.type("h200 sxm");
    await page.getByRole("option", { name: /H200-SXM/ }).waitFor();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await focus(/^Get settings$/);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: /Qwen3-32B/ }).waitFor();
    await focus(/^Overview$/);
    await page.keyboard.press("ArrowRight");
    await page.getByRole("heading", { name: "Set on purpose" }).waitFor();
    await page.keyboard.press("End");
    await page.getByRole("heading", { name: "What to watch in production" }).waitFor();
    return page;
  },

  /** A mistake is told at the field that has it, and the rest of the form stays. */
  async "mistakes-are-told-at-their-field"(browser) {
    const page = await open(browser);
    await page.getByLabel("Model", { exact: true }).fill("nobody/knows-this");
    await page.keyboard.press("Escape");
    await page.getByLabel("GPU", { exact: true }).fill("H100-SXM5-80GB");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Get settings" }).click();
    await page.getByRole("alert").waitFor();
    const model = page.getByLabel("Model", { exact: true });
    assert.equal(await model.getAttribute("aria-invalid"), "true");
    assert.match(await page.locator("#model-mistake").textContent(), /nobody\/knows-this/);
    assert.equal(await page.getByLabel("GPU", { exact: true }).inputValue(), "H100-SXM5-80GB");
    return page;
  },

  /** Moving a slider asks the service and shows what it answers. */
  async "what-ifs-ask-the-service"(browser) {
    const made = await ask(LLAMA);
    const page = await open(browser, { hash: `#/r/${made.id}/what-if` });
    const row = page.getByRole("row", { name: /^KV cache tokens/ });
    const asked = page.waitForResponse((response) => response.url().endsWith("/estimates"));
    await page.getByRole("radio", { name: "as the model" }).check();
    const answer = await (await asked).json();
    await page.waitForFunction(
      (tokens) => document.body.innerText.includes(tokens),
      answer.memory.kv_cache_tokens.toLocaleString("en-US"),
    );
    assert.ok(answer.memory.kv_cache_tokens < made.estimate.memory.kv_cache_tokens);
    assert.match(await row.textContent(), new RegExp(answer.memory.kv_cache_tokens.toLocaleString("en-US")));

    const slider = page.getByRole("slider", { name: "gpu_memory_utilization" });
    const lower = page.waitForResponse((response) => response.url().endsWith("/estimates"));
    await slider.focus();
    await page.keyboard.press("Home");
    const least = await (await lower).json();
    assert.ok(least.memory.kv_cache_tokens < answer.memory.kv_cache_tokens);
    await page.getByRole("button", { name: "Reset" }).click();
    return page;
  },

  /** An answer for a machine without GPUs speaks of its CPU, beside one for a GPU of both. */
  async "a-machine-without-gpus-is-called-so"(browser) {
    const [made, other] = [await ask(CPU), await ask(LLAMA)];
    const page = await open(browser, { hash: `#/r/${made.id}` });
    await page.getByRole("heading", { name: "Memory of one CPU" }).waitFor();
    assert.equal(await page.getByRole("heading", { name: /\bGPUs?\b/ }).count(), 0);
    await page.goto(`${base}/#/r/${made.id}/what-if`);
    await page.getByText("Memory of one CPU").waitFor();
    await page.goto(`${base}/#/compare?a=${made.id}&b=${other.id}`);
    await page.getByRole("heading", { name: "Memory of one CPU or GPU" }).waitFor();
    return page;
  },

  /** A point of the plot shows what it trades, by mouse and by key, and can be tried. */
  async "points-of-the-front-can-be-chosen"(browser) {
    const made = await ask(QWEN);
    const other = made.compared.find((item) => !item.chosen && item.on_front);
    const page = await open(browser, { hash: `#/r/${made.id}` });
    const point = page.getByRole("button", { name: new RegExp(`^${other.label}:`) });
    await point.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: new RegExp(`^${other.label}:`), pressed: true }).waitFor();
    await page.getByRole("heading", { level: 3, name: other.label }).waitFor();
    await page.getByRole("button", { name: "Try it in What if" }).click();
    const size = String(other.config.tensor_parallel_size);
    await page.getByRole("radio", { name: size, exact: true }).waitFor({ state: "attached" });
    assert.ok(await page.getByRole("radio", { name: size, exact: true }).isChecked());
    return page;
  },

  /** Every setting says why, from what, by which rule, and what a change would do. */
  async "settings-explain-themselves"(browser) {
    const made = await ask(LLAMA);
    const page = await open(browser, { hash: `#/r/${made.id}/settings` });
    await page.getByRole("button", { name: "Unfold all" }).click();
    const text = await page.getByRole("tabpanel").innerText();
    for (const decision of made.decisions)
      for (const part of [decision.setting, decision.reason, decision.if_higher, decision.if_lower, decision.rule])
        assert.ok(text.includes(part.trim().replace(/\s+/g, " ")), `${decision.setting}: ${part}`);
    return page;
  },

  /** An address with a tab that there is none of shows the first; one without an answer says so. */
  async "a-mistyped-address-leads-somewhere"(browser) {
    const made = await ask(LLAMA);
    const page = await open(browser, { hash: `#/r/${made.id}/none` });
    const tab = page.getByRole("tab", { name: "Overview" });
    assert.equal(await tab.getAttribute("aria-selected"), "true");
    await go(page, "#/r/");
    await page.getByText("There is no such page").waitFor();
    return page;
  },

  /** An answer that cannot be met shows what stands in the way, and asks for the nearest way. */
  async "what-cannot-be-met-leads-to-what-can"(browser) {
    const made = await ask(TOO_LARGE);
    const page = await open(browser, { hash: `#/r/${made.id}` });
    await page.getByText("Cannot be met").waitFor();
    await page.getByText(made.binding.detail, { exact: true }).waitFor();
    await page.getByRole("link", { name: "Ask for that instead" }).click();
    const gpus = page.getByLabel("GPUs in the machine");
    await page.waitForFunction(() => document.querySelector("#gpus-per-node")?.value !== "1");
    assert.equal(await gpus.inputValue(), String(made.nearest.hardware.gpus_per_node));
    return page;
  },

  /** Two of the history are compared; labels narrow it down. */
  async "history-is-filtered-and-compared"(browser) {
    await ask(LLAMA);
    await ask({ ...LLAMA, labels: { team: "browser" } });
    await ask({ ...QWEN, labels: { team: "browser" } });
    const page = await open(browser, { hash: "#/history" });
    await page.getByLabel("Labels", { exact: true }).fill("team=browser");
    await page.waitForFunction(() => document.querySelectorAll(".history > li").length === 2);
    for (const box of await page.getByRole("checkbox").all()) await box.check();
    await page.getByRole("link", { name: "Compare the two" }).click();
    await page.getByRole("heading", { level: 1, name: "Compare" }).waitFor();
    await page.getByRole("row", { name: /max_num_seqs/ }).waitFor();
    return page;
  },

  /** Without a worker the page says so; with "wait" it queues, and shows the end of it. */
  async "a-validation-waits-and-can-be-cancelled"(browser) {
    const made = await ask(LLAMA);
    const page = await open(browser, { hash: `#/r/${made.id}/proof` });
    await page.getByRole("button", { name: "Measure it" }).click();
    await page.getByText("No connected worker has this hardware").waitFor();
    await page.getByLabel(/Wait for a worker/).check();
    await page.getByRole("button", { name: "Measure it" }).click();
    await page.getByRole("progressbar").waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByText("Cancelled", { exact: true }).first().waitFor();
    return page;
  },

  /** A service that wants keys says so; with one the page works, and other tabs know nothing of it. */
  async "a-key-is-asked-for"(browser) {
    const page = await open(browser);
    await page.getByRole("button", { name: "Enter an API key" }).first().click();
    await page.getByLabel("Key", { exact: true }).fill(process.env.PORTAL_KEY);
    await page.getByRole("button", { name: "Use this key" }).click();
    await page.getByRole("radio", { name: /^Chat/ }).waitFor({ state: "attached" });
    await page.getByRole("button", { name: /^Llama 3.1 8B/ }).click();
    await page.getByRole("button", { name: "Get settings" }).click();
    await page.getByRole("heading", { level: 1, name: /Llama-3.1-8B-Instruct on 1 × H100/ }).waitFor();
    const stored = await page.evaluate(() => JSON.stringify(localStorage) + document.cookie);
    assert.ok(!stored.includes(process.env.PORTAL_KEY));
    return page;
  },

  /** A small model is measured by vLLM on this machine's CPU, and the page shows it finish. */
  async "a-validation-is-seen-to-finish"(browser) {
    const { request, model_path: path } = JSON.parse(process.env.PORTAL_PROOF);
    const made = await ask(request);
    const page = await open(browser, { hash: `#/r/${made.id}/proof` });
    await page.getByRole("radio", { name: /^Quick/ }).check();
    await page.getByLabel("Model folder on the worker").fill(path);
    await page.getByRole("button", { name: "Measure it" }).click();
    await page.getByRole("progressbar").waitFor();
    await page.getByRole("heading", { name: /^Start in/ }).waitFor({ timeout: 600_000 });
    await page.getByRole("table").first().waitFor();
    await page.getByRole("progressbar").waitFor({ state: "detached", timeout: 600_000 });
    const record = await (await fetch(`${base}/recommendations/${made.id}`)).json();
    assert.equal(record.validations[0].status, "succeeded");
    assert.ok(await page.getByRole("group", { name: "Under load" }).last().isVisible());
    assert.deepEqual(await violations(page), []);
    await page.setViewportSize({ width: 360, height: 800 });
    assert.equal(await excess(page), 0);
    return page;
  },

  /** axe finds nothing, in both colour schemes, in every view. */
  async "accessible-in-light-and-dark"(browser) {
    const found = [];
    const hashes = await views();
    for (const colorScheme of ["light", "dark"]) {
      const page = await open(browser, { colorScheme, reducedMotion: "reduce" });
      for (const hash of hashes) {
        await go(page, hash);
        for (const one of await violations(page)) found.push(`${colorScheme} ${hash} ${one}`);
      }
      assert.deepEqual(page.faults, []);
    }
    assert.deepEqual(found, []);
    return await open(browser);
  },

  /** Nothing is wider than a phone. */
  async "fits-a-phone"(browser) {
    const wide = [];
    for (const width of [360, 412]) {
      const page = await open(browser, { viewport: { width, height: 800 }, isMobile: true, hasTouch: true });
      for (const hash of await views()) {
        await go(page, hash);
        const over = await excess(page);
        if (over > 0) wide.push(`${hash} at ${width}: ${over} px too wide`);
      }
    }
    assert.deepEqual(wide, []);
    return await open(browser);
  },

  /** The choice of colours is kept. */
  async "colours-are-kept"(browser) {
    const page = await open(browser, { colorScheme: "light" });
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await background();
    await page.getByLabel("Colours").selectOption("dark");
    const dark = await background();
    await page.reload();
    assert.notEqual(light, dark);
    assert.equal(await background(), dark);
    return page;
  },
};

const browser = await chromium.launch({ executablePath: process.env.PORTAL_CHROMIUM ?? "/usr/bin/chromium", args: [...FLAGS, ...QUIET] });
try {
  const page = await scenarios[name](browser);
  assert.deepEqual(page.faults, []);
} finally {
  await browser.close();
}
