// A page that was opened as a file may start no worker: the search runs in a hidden frame of it instead.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.tell(this, data);
      this.ready = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.src = new URL(url, document.baseURI);
        script.onload = resolve;
        inside.document.body.append(script);
      });
      this.frame = frame;
      this.tell = (target, data) => {
        const event = new MessageEvent("message", { data });
        target.dispatchEvent(event);
        target.onmessage?.(event);
      };
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
