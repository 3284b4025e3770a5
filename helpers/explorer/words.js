// What is said below the picture, and the tasks: the same words and rules as in words.py.

const NOTCHES = 150; // of the learning rate, from 0.001 to 1
const lrAt = (notch) => Number((10 ** (notch / 50 - 3)).toPrecision(3));
const notchOf = (lr) => Math.round(50 * (Math.log10(lr) + 3));
const threeDigits = (lr) => lr.toPrecision(3);

function short(number) {
  if (Number.isFinite(number)) return number.toExponential(1).replace(/e([+-])(\d)$/, "e$10$2");
  return String(number).toLowerCase().replace("infinity", "inf");
}
const coordinate = (number) => (Math.abs(number) < 1e4 ? number.toFixed(3) : short(number));

function ending(run) {
  const [x0, x1] = run.points.subarray(2 * run.steps);
  const lost = run.points.findIndex((number) => !Number.isFinite(number));
  const gone = lost < 0 ? "" : ` Not finite from step ${lost >> 1} on.`;
  return `ends at (${coordinate(x0)}, ${coordinate(x1)}), f = ${short(run.values[run.steps])}.${gone}`;
}

const settingsOf = ({ lr, noise, steps }) => `lr ${threeDigits(lr)}, noise ${noise.toFixed(2)}, ${steps} steps`;

function sentence(settings, [main, other], ends) {
  const words = [`${main.optimizer}, ${settingsOf(settings)}: ${ending(main)}`];
  if (other) words.push(`${other.optimizer}: ${ending(other)}`);
  if (ends.length) {
    const below = ends.filter(isLow).length;
    words.push(`Of ${main.optimizer}'s ${ends.length} seeds, ${below} end below 1e-6.`);
  }
  return words.join(" ");
}

// --- tasks

const isLow = (run) => run.values[run.steps] < OPTIMUM_SEEN;
const TASKS = [
  {
    text: "Get f below 1e-6 within 100 steps at noise 0.50, from the start (0.10, 0.10).",
    solved: ({ noise, steps, start }, run) =>
      noise === 0.5 && steps <= 100 && start.every((number) => number === 0.1) && isLow(run),
    more: (settings) => ` It works with ${bySeed(settings, 64).filter(isLow).length} of 64 seeds.`,
  },
  {
    text: "Choose an optimiser that diverges: its path ends in NaN or Inf. Find the smallest learning rate at which it does.",
    solved(settings, run) {
      if (!diverges(run)) return false;
      for (let below = 0; lrAt(below) < settings.lr; below++)
        if (diverges(simulate(settings, { lr: lrAt(below) }))) return false;
      return true;
    },
    more: () => "",
  },
];

// --- what is what

const MEANINGS = [
  ["surface", "f(x) = (1 − x₀)² + 5 (x₁ − x₀²)². From one line to the next f grows by a factor of √10."],
  ["paths", "A small square is a step, the large one the end. A second optimiser is dashed, torch is dotted."],
  ["f over steps", "f without noise, for the seed of the slider. A line below 10⁻¹² or above 100 leaves the picture."],
  ["optimiser", "SGD steps against the gradient. Momentum and Adam take a mean of the gradients. RMSprop and Adam divide by their size. AdamW also shrinks x a little. Each is torch's own."],
  ["noise is", "Multiplied: the gradient times a draw from 1 − noise to 1 + noise. Added: plus such a draw around 0."],
  ["f, gradient", "In a step the value and the gradient have a draw each, or share one. An optimiser uses the gradient only, so this just gives it other draws."],
  ["seed", "Where the draws come from. It stays while another slider moves, and so do the draws."],
  ["64 seeds", "The same run with 64 seeds: dots are the ends, the band holds the middle half, its dotted line is the median. Without noise all are one."],
  ["beta1, beta2", "How much of its two running means, of the gradients and of their squares, Adam keeps in a step."],
];
const QUESTION =
  "What does noise do? Switch 64 seeds on. Go from noise 0 to 1, first at learning rate 0.03, then at 0.5.";
