// The instrument: sliders, the start under the hand, the sentence, the tasks, and the way to torch.
// A change runs and draws here, once a frame. The kernel hears of it when the hand lets go.

const SETTINGS = ["noise", "lr", "steps", "seed", "start", "beta1", "beta2"].concat(
  ["optimizer", "compare", "kind", "draws", "seeds"],
);
const SLIDERS = [
  { name: "noise", label: "noise", max: 1, step: 0.01, words: (noise) => noise.toFixed(2) },
  { name: "lr", label: "learning rate", max: NOTCHES, step: 1, read: lrAt, place: notchOf, words: threeDigits },
  { name: "steps", label: "steps", min: 10, max: 500, step: 10, words: String },
  { name: "seed", label: "seed", max: 100, step: 1, words: String },
  { name: "beta1", label: "beta1", max: 0.99, step: 0.01, words: (beta) => beta.toFixed(2), folded: true },
  { name: "beta2", label: "beta2", max: 0.999, step: 0.001, words: (beta) => beta.toFixed(3), folded: true },
];
const WIDE = [500, 560]; // pixels from which there are four sliders in a row, and two pictures
const NAMES = Object.keys(OPTIMIZERS).map((name) => [name, name]);
const CHOICES = [
  { name: "optimizer", label: "optimiser", options: NAMES },
  { name: "compare", label: "compare with", options: [["", "none"], ...NAMES] },
  { name: "kind", label: "noise is", options: [["factor", "multiplied"], ["term", "added"]] },
  { name: "draws", label: "f, gradient", options: [["independent", "own draw"], ["shared", "shared"]] },
  { name: "seeds", label: "seeds", options: [[0, "1"], [64, "64"]] },
];

// --- elements

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// The same words again would make the page lay itself out again.
function write(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

// JupyterLab would take the arrow keys for itself.
const NO_SHORTCUTS = "data-lm-suppress-shortcuts";
const control = (tag, attributes, ...children) =>
  element(tag, { [NO_SHORTCUTS]: "", ...attributes }, ...children);

const group = (name, ...children) => element("div", { class: `byg-${name}` }, ...children);

function build(el) {
  const parts = { inputs: {}, outputs: {} };
  const sliders = SLIDERS.map(({ name, label, min = 0, max, step, folded }) => {
    parts.inputs[name] = control("input", { type: "range", min, max, step, "data-name": name, "aria-label": label });
    parts.outputs[name] = element("b", { "data-value": name });
    const words = element("span", {}, `${label} `, parts.outputs[name]);
    return { made: element("label", { class: "byg-slider" }, words, parts.inputs[name]), folded };
  });
  const choices = CHOICES.map(({ name, label, options }) => {
    parts.inputs[name] = control("select", { "data-name": name, "aria-label": label });
    parts.inputs[name].append(...options.map(([value, words]) => element("option", { value }, words)));
    return element("label", { class: "byg-choice" }, element("span", {}, `${label} `), parts.inputs[name]);
  });
  const pick = (which) => sliders.filter(({ folded }) => Boolean(folded) === which).map(({ made }) => made);
  parts.surface = element("canvas", { role: "img" });
  parts.losses = element("canvas", { role: "img" });
  const handle = { class: "byg-start", role: "slider", tabindex: 0, "aria-label": "start: arrow keys move it" };
  parts.handle = control("div", handle, element("span", {}, "start"));
  parts.summary = element("p", { class: "byg-summary", "aria-live": "polite", "aria-atomic": "true" });
  parts.button = control("button", { type: "button", class: "byg-run" }, "run in torch");
  parts.answer = element("span", { class: "byg-answer", role: "status" });
  const meanings = MEANINGS.flatMap(([word, meaning]) => [element("dt", {}, word), element("dd", {}, meaning)]);
  parts.tasks = TASKS.map(({ text }) => element("li", { "data-solved": "false" }, text));
  el.classList.add("byg-explorer");
  el.append(
    group("sliders", ...pick(false)),
    group("choices", ...choices),
    group(
      "folds",
      element("details", {}, control("summary", {}, "beta1 and beta2"), group("sliders", ...pick(true))),
      element("details", {}, control("summary", {}, "what is what"), element("dl", {}, ...meanings)),
    ),
    group("pictures", group("surface", parts.surface, parts.handle), parts.losses),
    parts.summary,
    group("foot", parts.button, parts.answer),
    element("p", { class: "byg-question" }, QUESTION),
    element("ul", { class: "byg-tasks" }, ...parts.tasks),
  );
  return parts;
}

// Whether the ground under an element is dark: that of the first element around it that has one, or else the page's.
function isDark(el) {
  for (let around = el; around; around = around.parentElement) {
    const ground = getComputedStyle(around).backgroundColor.match(/[\d.]+/g) ?? [0, 0, 0, 0]; // none: not in the page yet
    const [red, green, blue, alpha = 1] = ground.map(Number);
    if (alpha > 0) return red + green + blue < 384;
  }
  const { colorScheme } = getComputedStyle(document.documentElement);
  return colorScheme.includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches;
}

// --- the instrument

function render({ model, el }) {
  // In a form of its own: Chromium would search the whole page for fields at each change.
  const root = el.appendChild(element("form", { autocomplete: "off" }));
  root.addEventListener("submit", (event) => event.preventDefault());
  const parts = build(root);
  const look = model.get("look"); // palette, view and optimum, from Python's one place
  const state = Object.fromEntries(SETTINGS.map((name) => [name, model.get(name)]));
  const changed = new Set();
  const shown = {};
  const NO_KERNEL = model.send ? "" : "It needs a kernel: run the cell in JupyterLab.";
  let runs = [];
  let torch = null;
  const view = Math.random(); // another view of the same explorer hears the kernel's answers, too
  let version = 0;
  let waiting = 0;
  let saving = 0;
  let moved = false;
  let keyHeld = false;

  let [width, height, colours] = [0, 0, null]; // kept: who asks for them makes the page lay itself out
  const scales = () => surfaceScales(width, height, look.view);

  function show() {
    const isNew = ({ name }) => shown[name] !== state[name];
    for (const { name, max, step, place = Number, words } of SLIDERS.filter(isNew)) {
      const at = place(state[name]);
      parts.inputs[name].max = Math.max(max, at); // Python may have set what the hand cannot
      parts.inputs[name].step = Math.abs(at / step - Math.round(at / step)) < 1e-6 ? step : step / 10;
      parts.inputs[name].value = at;
      parts.inputs[name].setAttribute("aria-valuetext", words(state[name]));
      parts.outputs[name].textContent = words(state[name]);
    }
    for (const { name } of CHOICES.filter(isNew)) {
      const chosen = String(state[name] ?? "");
      const known = [...parts.inputs[name].options].some(({ value }) => value === chosen);
      if (!known) parts.inputs[name].append(element("option", { value: chosen }, chosen));
      parts.inputs[name].value = chosen;
    }
    Object.assign(shown, state);
    const [x0, x1] = state.start.map((number) => number.toFixed(2));
    [parts.handle.ariaValueMin, parts.handle.ariaValueMax] = look.view;
    parts.handle.setAttribute("aria-valuenow", x0);
    parts.handle.setAttribute("aria-valuetext", `x₀ ${x0}, x₁ ${x1}`);
  }

  function paint() {
    waiting = 0;
    if (!width || !height) return; // not laid out yet: the observer calls again
    root.dataset.dark = colours.dark;

    runs = [simulate(state)];
    if (state.compare) runs.push(simulate(state, { optimizer: state.compare }));
    const ends = bySeed(state, state.seeds);
    drawSurface(parts.surface, [width, height], { runs, ends, torch, ...look }, colours);
    drawLosses(parts.losses, [width, height], { runs, ends, torch }, colours);
    show();
    parts.handle.dataset.side = state.start[0] < -0.3 ? "right" : "left";
    parts.handle.style.left = `${scales().x(state.start[0])}px`;
    parts.handle.style.top = `${scales().y(state.start[1])}px`;
    write(parts.summary, sentence(state, runs, ends));
    parts.surface.setAttribute("aria-label", `The path on the surface. ${parts.summary.textContent}`);
    parts.losses.setAttribute("aria-label", `f over the steps. ${parts.summary.textContent}`);
    root.dataset.pictures = Number(root.dataset.pictures ?? 0) + 1;
  }

  function change(name, value) {
    if (state[name] === value) return;
    state[name] = value;
    changed.add(name);
    moved = true;
    torch = null; // it belongs to the settings before
    parts.summary.setAttribute("aria-busy", "true"); // a screen reader waits until the hand lets go
    tell(NO_KERNEL);
    version += 1;
    schedule();
  }
  const schedule = () => (waiting ||= requestAnimationFrame(paint));

  function save() {
    clearTimeout(saving);
    if (!moved) return;
    moved = false;
    judge();
    parts.summary.setAttribute("aria-busy", "false");
    for (const name of changed) model.set(name, state[name]);
    if (changed.size) model.save_changes?.();
    changed.clear();
  }

  function saveSoon() {
    clearTimeout(saving);
    saving = setTimeout(save, 200); // after the picture, and once for a row of key presses
  }

  function judge() {
    const run = simulate(state);
    TASKS.forEach(({ solved, more }, i) => {
      if (parts.tasks[i].dataset.solved !== "true" && solved(state, run)) {
        parts.tasks[i].dataset.solved = "true";
        const how = `${run.optimizer}, ${settingsOf(state)}, seed ${state.seed}`;
        const betas = state.beta1 === 0.9 && state.beta2 === 0.999 ? "" : `, betas ${state.beta1}, ${state.beta2}`;
        parts.tasks[i].append(element("b", {}, ` Solved: ${how}${betas}.${more(state)}`));
      }
    });
  }

  // --- the hand

  const sliders = Object.fromEntries(SLIDERS.map((slider) => [slider.name, slider]));
  root.addEventListener("input", ({ target }) => {
    const { name } = target.dataset;
    const { read = Number } = sliders[name] ?? { read: name === "seeds" ? Number : (chosen) => chosen || null };
    if (name) change(name, read(target.value));
  });
  root.addEventListener("change", () => keyHeld || saveSoon());
  root.addEventListener("keydown", () => (keyHeld = true));
  root.addEventListener("keyup", () => ((keyHeld = false), saveSoon()));
  root.addEventListener("focusout", () => ((keyHeld = false), save()));

  const kept = (number, low, high) => Number(Math.max(low, Math.min(high, number)).toFixed(2));
  function moveStart(x0, x1) {
    const [left, right, bottom, top] = look.view;
    const start = [kept(x0, left, right), kept(x1, bottom, top)];
    if (start.some((number, i) => number !== state.start[i])) change("start", start);
  }
  const follow = ({ clientX, clientY }) => {
    const { left, top } = parts.surface.getBoundingClientRect();
    moveStart(scales().x0(clientX - left - held[0]), scales().x1(clientY - top - held[1]));
  };
  let held = [0, 0]; // where on the handle the pointer took it
  parts.handle.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const { left, top, width, height } = parts.handle.getBoundingClientRect();
    held = [event.clientX - left - width / 2, event.clientY - top - height / 2];
    parts.handle.setPointerCapture(event.pointerId);
    parts.handle.focus();
    event.preventDefault();
  });
  parts.handle.addEventListener("pointermove", (event) => {
    if (parts.handle.hasPointerCapture(event.pointerId)) follow(event);
  });
  parts.handle.addEventListener("lostpointercapture", save);
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };
  parts.handle.addEventListener("keydown", (event) => {
    if (!ARROWS[event.key] || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const far = event.shiftKey ? 0.01 : 0.05;
    moveStart(...ARROWS[event.key].map((way, i) => state.start[i] + far * way));
  });

  // JupyterLab looks for this attribute before it takes a key. Its shortcuts with Ctrl or Cmd shall work here, too.
  function lendShortcuts({ target, ctrlKey, metaKey }) {
    if (target.dataset && root.contains(target)) target.toggleAttribute(NO_SHORTCUTS, !(ctrlKey || metaKey));
  }
  window.addEventListener("keydown", lendShortcuts, true);

  // --- the kernel

  const tell = (words) => write(parts.answer, words);
  parts.button.addEventListener("click", () => {
    save();
    tell("Waiting for the kernel …");
    try {
      model.send({ run: [view, version], settings: state });
    } catch {
      return tell("The kernel behind this explorer is gone. Run its cell again.");
    }
    const asked = parts.answer.firstChild;
    const unheard = () => parts.answer.firstChild === asked;
    setTimeout(() => unheard() && tell("The kernel is busy, or it was restarted: then run this cell again."), 8000);
  });
  function answer({ run, refused }, buffers) {
    if (run?.[0] !== view) return;
    if (run[1] !== version || refused) return tell(refused ?? "The settings changed meanwhile. Run it again.");
    const numbers = (view) => new Float64Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
    const [points, values] = buffers.map(numbers);
    torch = { points, values, steps: values.length - 1 };
    const name = state.optimizer === "momentum" ? "SGD(momentum=0.9)" : state.optimizer;
    const apart = largestDifference(runs[0], torch);
    const why = apart > 1e-9 ? " On this path the last digit's rounding grows." : "";
    tell(`torch.optim.${name}, same draws: largest difference ${short(apart)}.${why}`);
    schedule();
  }
  if (!model.send) {
    parts.button.disabled = true;
    tell(NO_KERNEL);
  } else {
    model.on("msg:custom", answer);
  }
  const hear = SETTINGS.map((name) => {
    const heard = () => {
      if (changed.has(name) || String(state[name]) === String(model.get(name))) return;
      change(name, model.get(name));
      changed.delete(name); // Python knows it
      saveSoon();
    };
    return [`change:${name}`, heard];
  });
  for (const [event, heard] of hear) model.on?.(event, heard);

  // --- the page around it

  function measure() {
    root.dataset.wide = WIDE.filter((width) => root.clientWidth >= width).length;
    ({ clientWidth: width, clientHeight: height } = parts.surface);
    colours = theme(look.palette, isDark(el));
    schedule();
  }
  const resized = new ResizeObserver(measure);
  resized.observe(root);
  resized.observe(parts.surface);
  const themed = new MutationObserver(() => {
    measure();
    setTimeout(measure, 500); // JupyterLab takes its style sheets away for a moment: then nothing has a size
  });
  themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", measure);
  window.addEventListener("resize", measure); // a zoomed page has other pixels

  measure();
  paint();
  root.dataset.alive = "true"; // explorer.css hides the picture that stands in
  return () => {
    resized.disconnect();
    themed.disconnect();
    scheme.removeEventListener("change", measure);
    window.removeEventListener("resize", measure);
    window.removeEventListener("keydown", lendShortcuts, true);
    for (const [event, heard] of hear) model.off?.(event, heard);
    model.off?.("msg:custom", answer);
  };
}

export default { render };
