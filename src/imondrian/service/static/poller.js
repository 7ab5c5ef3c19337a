// Polling: one request at a time, none while the page is hidden, fewer while requests fail.

const PERIOD = 1000; // milliseconds
const MAX_PERIOD = 10_000;

export class Poller {
  #task;
  #timer = null;
  #delay = PERIOD;
  #isBusy = false;
  #isRequested = false;
  #isPaused = false;

  constructor(task) {
    this.#task = task; // returns true if it succeeded
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
      this.#isRequested = true;
      return;
    }
    if (this.#isPaused || document.hidden) return;
    this.#isBusy = true;
    this.#isRequested = false;
    let isOk = false;
    try {
      isOk = await this.#task();
    } finally {
      this.#schedule(isOk);
    }
  }

  #schedule(isOk) {
    this.#isBusy = false;
    this.#delay = isOk ? PERIOD : Math.min(this.#delay * 2, MAX_PERIOD);
    this.#timer = setTimeout(() => this.now(), this.#isRequested ? 0 : this.#delay);
  }
}
