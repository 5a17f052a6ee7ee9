"use strict";
// Where this page lies only the browser knows: commands get the whole address of what they are of.
for (const one of document.querySelectorAll("[data-of]")) {
  const { href } = new URL(one.dataset.of, location.href);
  if (!/[^\w.~%+/:@=-]/.test(href)) one.textContent = href;
}
