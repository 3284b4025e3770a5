// The run of an optimiser on the noisy Rosenbrock function: simulation.py once more, with its names in its order.

const OPTIMUM_SEEN = 1e-6; // "below" in every sentence

// --- the draws: numpy.random.default_rng(seed).random(), bit for bit
// PCG64 is M. E. O'Neill's generator (2014) with the output function XSL-RR; NumPy's SeedSequence makes its first state.

const LOW_64 = (1n << 64n) - 1n;
const LOW_128 = (1n << 128n) - 1n;
const MULTIPLIER = 47026247687942121848144207491837523525n;

// Its constants are written in decimal: a lesson's stored output keeps no 0x…, which might be an address.
function seedSequence(seed, words) {
  let hash = 1135663077;
  const mixIn = (value) => {
    value = (value ^ hash) >>> 0;
    hash = Math.imul(hash, 2468251765) >>> 0;
    value = Math.imul(value, hash) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  };
  const mix = (x, y) => {
    const mixed = (Math.imul(3389127133, x) - Math.imul(1232336661, y)) >>> 0;
    return (mixed ^ (mixed >>> 16)) >>> 0;
  };
  const pool = [seed, 0, 0, 0].map(mixIn);
  for (let from = 0; from < 4; from++)
    for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mix(pool[to], mixIn(pool[from]));
  hash = 2337405405;
  return Array.from({ length: words }, (_, i) => {
    let value = (pool[i % 4] ^ hash) >>> 0;
    hash = Math.imul(hash, 1492356589) >>> 0;
    value = Math.imul(value, hash) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  });
}

function uniforms(seed, count) {
  const words = seedSequence(seed, 8).map(BigInt); // four numbers of 64 bits, the lower half of each first
  const [a, b, c, d] = [0, 2, 4, 6].map((i) => words[i] | (words[i + 1] << 32n));
  const increment = ((((c << 64n) | d) << 1n) | 1n) & LOW_128;
  let state = (increment + ((a << 64n) | b)) & LOW_128;
  const advance = () => (state = (state * MULTIPLIER + increment) & LOW_128);
  advance();
  return Float64Array.from({ length: count }, () => {
    advance();
    const folded = (state >> 64n) ^ (state & LOW_64);
    const turn = state >> 122n;
    const bits = ((folded >> turn) | (folded << (64n - turn))) & LOW_64;
    return Number(bits >> 11n) / 2 ** 53;
  });
}

const tables = new Map(); // seed -> its draws: the same ones for every position of the other sliders
function draws(seed, count) {
  if (!(tables.get(seed)?.length >= count)) tables.set(seed, uniforms(seed, Math.max(count, 1000)));
  if (tables.size > 300) tables.delete(tables.keys().next().value);
  return tables.get(seed);
}

// --- the optimisers, each as torch.optim has it; x, g, m and v hold two numbers

const EPS = 1e-8;

function sgd(x, g, m, v, t, { lr }) {
  for (let i = 0; i < 2; i++) x[i] -= lr * g[i];
}

function momentum(x, g, m, v, t, { lr }) {
  for (let i = 0; i < 2; i++) {
    m[i] = 0.9 * m[i] + g[i];
    x[i] -= lr * m[i];
  }
}

function rmsprop(x, g, m, v, t, { lr }) {
  for (let i = 0; i < 2; i++) {
    v[i] = 0.99 * v[i] + (1 - 0.99) * g[i] * g[i];
    x[i] -= (lr * g[i]) / (Math.sqrt(v[i]) + EPS);
  }
}

function adam(x, g, m, v, t, { lr, beta1, beta2 }) {
  const size = lr / (1 - beta1 ** t);
  const root = Math.sqrt(1 - beta2 ** t);
  for (let i = 0; i < 2; i++) {
    m[i] += (1 - beta1) * (g[i] - m[i]);
    v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
    x[i] -= (size * m[i]) / (Math.sqrt(v[i]) / root + EPS);
  }
}

function adamw(x, g, m, v, t, settings) {
  for (let i = 0; i < 2; i++) x[i] *= 1 - settings.lr * 0.01;
  adam(x, g, m, v, t, settings);
}

const OPTIMIZERS = { SGD: sgd, momentum, RMSprop: rmsprop, Adam: adam, AdamW: adamw };

// --- the run

function value([x0, x1]) {
  const along = 1 - x0;
  const across = x1 - x0 * x0;
  return along * along + 5 * (across * across);
}

function gradient([x0, x1], g) {
  const along = 1 - x0;
  const across = x1 - x0 * x0;
  g[0] = -2 * along - 20 * x0 * across;
  g[1] = 10 * across;
}

function simulate(settings, { optimizer = settings.optimizer, seed = settings.seed, lr = settings.lr } = {}) {
  const { noise, steps, start, beta1, beta2, kind } = settings;
  const width = kind === "factor" ? 1 : 2; // numbers in one draw
  const calls = settings.draws === "independent" ? 2 : 1; // draws in one step: value and gradient, or one for both
  const u = draws(seed, steps * calls * width);
  const [low, high] = kind === "factor" ? [1 - noise, 1 + noise] : [-noise, noise];
  const drawn = (i) => low + (high - low) * u[i];

  const step = OPTIMIZERS[optimizer];
  const options = { lr, beta1, beta2 };
  const x = [...start];
  const g = [0, 0];
  const m = [0, 0];
  const v = [0, 0];
  const points = new Float64Array(2 * steps + 2);
  const values = new Float64Array(steps + 1);
  const losses = new Float64Array(steps);
  points.set(x);
  values[0] = value(x);
  for (let t = 1; t <= steps; t++) {
    const first = (t - 1) * calls * width; // the value's draw
    const second = first + (calls - 1) * width; // the gradient's draw
    gradient(x, g);
    if (kind === "factor") {
      losses[t - 1] = values[t - 1] * drawn(first);
      for (let i = 0; i < 2; i++) g[i] *= drawn(second);
    } else {
      losses[t - 1] = values[t - 1] + (drawn(first) * x[0] + drawn(first + 1) * x[1]);
      for (let i = 0; i < 2; i++) g[i] += drawn(second + i);
    }
    step(x, g, m, v, t, options);
    [points[2 * t], points[2 * t + 1]] = x;
    values[t] = value(x);
  }
  return { optimizer, points, values, losses, steps };
}

function bySeed(settings, count) {
  return Array.from({ length: count }, (_, i) => simulate(settings, { seed: settings.seed + i }));
}

function diverges(run) {
  return !run.points.every(Number.isFinite);
}

// NaN beside NaN and Inf beside the same Inf are no difference; beside a number they are an infinite one.
function largestDifference(run, other) {
  let largest = 0;
  run.points.forEach((a, i) => {
    const b = other.points[i];
    if (Object.is(a, b) || a === b) return;
    const apart = Math.abs(a - b) / Math.max(1, Math.abs(b));
    largest = Math.max(largest, Number.isNaN(apart) ? Infinity : apart);
  });
  return largest;
}
