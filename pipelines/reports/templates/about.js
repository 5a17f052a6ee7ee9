"use strict";
// Where this page lies only the browser knows: commands get the whole address of what they are of,
// as far as they take it: by https, without the password that somebody has opened this page with.
for (const one of document.querySelectorAll("[data-of]")) {
  const url = new URL(one.dataset.of, location.href);
  url.username = url.password = "";
  if (url.protocol === "https:" && !/[^\w.~%+/:@=-]/.test(url.href)) one.textContent = url.href;
}
