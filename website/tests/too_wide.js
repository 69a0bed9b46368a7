// What a selector names that stands out of the window, and in nothing that scrolls.
(elements = "article *") => {
  const room = document.documentElement.clientWidth;
  const scrolls = (e) => e && (["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX)
                               || scrolls(e.parentElement));
  return [...document.querySelectorAll(elements)]
    .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > room + 1)
    .filter((e) => !scrolls(e.parentElement) && getComputedStyle(e).overflowX === "visible")
    .map((e) => [e.tagName, e.textContent.trim().slice(0, 40)]);
}
