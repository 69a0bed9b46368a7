// Search in pages that are opened as files: browsers start no workers there.  The script of the
// worker runs in a frame instead, whose window stands for the worker's.
class FrameWorker extends EventTarget {
  #frame = document.createElement("iframe");
  #waiting = [];

  constructor(url) {
    super();
    this.#frame.hidden = true;
    // where the frame's first document is loaded later, what it had before is lost
    this.#frame.addEventListener("load", () => this.#start(String(url)), { once: true });
    document.body.append(this.#frame);
  }

  postMessage(data) {
    if (this.#waiting) this.#waiting.push(data);
    else this.#deliver(data);
  }

  terminate() {
    this.#frame.remove();
  }

  #start(url) {
    const { contentWindow: scope, contentDocument: page } = this.#frame;
    scope.postMessage = (data) => {
      const event = new MessageEvent("message", { data: structuredClone(data) });
      // later, as from a thread: who posts does not expect an answer while it does
      setTimeout(() => {
        this.onmessage?.(event);
        this.dispatchEvent(event);
      });
    };
    const script = page.createElement("script");
    script.addEventListener("load", () => {
      const waiting = this.#waiting;
      this.#waiting = null;
      waiting.forEach((data) => this.#deliver(data));
    });
    script.addEventListener("error", () => this.onerror?.(new Event("error")));
    script.src = url;
    page.head.append(script);
  }

  #deliver(data) {
    const scope = this.#frame.contentWindow;
    if (!scope) return; // terminated
    // a copy, as between threads, of the kinds that the script's window has
    const copy = scope.structuredClone(data);
    setTimeout(() => scope.dispatchEvent(new scope.MessageEvent("message", { data: copy })));
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
