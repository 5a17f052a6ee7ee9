/* Search where the site is opened as a file: a browser starts no worker there, so this runs the
   worker's script in a hidden frame, and passes its messages on. On a server nothing is changed. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "Search";
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve) => {
        const script = inner.document.createElement("script");
        script.onload = () => resolve(inner);
        script.src = url;
        inner.document.body.append(script);
      });
    }
    postMessage(data) {
      this.ready.then((inner) => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
