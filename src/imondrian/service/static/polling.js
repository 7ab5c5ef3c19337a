// Asking again and again: one at a time, not while nobody looks, less often while it fails.

const PERIOD = 1000; // milliseconds
const LONGEST = 10_000;

export class Poller {
  #task;
  #timer = null;
  #delay = PERIOD;
  #isBusy = false;
  #isWanted = false;
  #isPaused = false;

  constructor(task) {
    this.#task = task; // gives whether all went well
    document.addEventListener("visibilitychange", () => this.now());
    window.addEventListener("online", () => this.now());
  }

  set isPaused(value) {
    this.#isPaused = value;
    this.now();
  }

  async now() {
    clearTimeout(this.#timer);
    if (this.#isBusy) {
      this.#isWanted = true;
      return;
    }
    if (this.#isPaused || document.hidden) return;
    this.#isBusy = true;
    this.#isWanted = false;
    let isWell = false;
    try {
      isWell = await this.#task();
    } finally {
      this.#goOn(isWell);
    }
  }

  #goOn(isWell) {
    this.#isBusy = false;
    this.#delay = isWell ? PERIOD : Math.min(this.#delay * 2, LONGEST);
    this.#timer = setTimeout(() => this.now(), this.#isWanted ? 0 : this.#delay);
  }
}
