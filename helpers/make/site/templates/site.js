"use strict";
// Light and dark, the contents on a phone, the search. Runs without a server and without a network.
(() => {
  const html = document.documentElement;
  const root = document.currentScript.dataset.root;
  const themes = ["auto", "light", "dark"];
  const setTheme = (theme) => { html.dataset.theme = theme; };
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  setTheme(stored() ?? "auto");

  const begin = () => {
    const theme = document.getElementById("theme");
    const sayTheme = () => { theme.querySelector("b").textContent = html.dataset.theme; };
    sayTheme();
    theme.onclick = () => {
      setTheme(themes[(themes.indexOf(html.dataset.theme) + 1) % themes.length]);
      try { localStorage.setItem("theme", html.dataset.theme); } catch { /* not kept then */ }
      sayTheme();
    };

    const menu = document.getElementById("menu");
    const contents = document.getElementById("contents");
    menu.onclick = () => {
      menu.setAttribute("aria-expanded", contents.classList.toggle("open"));
    };
    const here = contents.querySelector("[aria-current]");
    if (here) contents.scrollTop = here.offsetTop - contents.clientHeight / 3;

    // what scrolls sideways can be scrolled by keys
    const wide = document.querySelectorAll(".wide, .highlight, .prose pre");
    const letScroll = () => {
      for (const box of wide) {
        if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
        else box.removeAttribute("tabindex");
      }
    };
    letScroll();
    addEventListener("resize", letScroll);
    document.addEventListener("toggle", letScroll, true);

    const search = document.getElementById("search");
    if (search) beginSearch(search);
  };

  const beginSearch = (form) => {
    const input = form.querySelector("input");
    const found = document.getElementById("found");
    let index = null;

    const load = () => {
      if (index) return;
      index = [];
      const script = document.createElement("script");
      script.src = `${root}assets/search.js`;
      document.head.append(script);
    };
    window.searchIndex = (parts) => {
      index = parts.map(([address, title, heading, text]) => (
        { address, title, heading, text, low: `${title}\n${heading}\n${text}`.toLowerCase() }
      ));
      show();
    };

    const score = (part, words) => {
      let sum = 0;
      for (const word of words) {
        if (!part.low.includes(word)) return 0;
        sum += part.heading.toLowerCase().includes(word) ? 5 : 1;
        sum += part.title.toLowerCase().includes(word) ? 2 : 0;
        sum += Math.min(part.low.split(word).length - 2, 4) / 4;
      }
      return sum;
    };
    const around = (text, word) => {
      const at = text.toLowerCase().indexOf(word);
      const start = Math.max(0, at - 60);
      return (start ? "…" : "") + text.slice(start, start + 160).trim() + "…";
    };
    const show = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      found.replaceChildren();
      found.hidden = !words.length;
      if (found.hidden) return;
      const best = index.map((part) => [score(part, words), part]).filter(([sum]) => sum)
        .sort((one, other) => other[0] - one[0]);
      const says = document.createElement("p");
      says.textContent = best.length ? `${best.length} places` : "Nothing found";
      found.append(says);
      for (const [, part] of best.slice(0, 20)) {
        const link = document.createElement("a");
        const title = document.createElement("b");
        const text = document.createElement("small");
        link.href = root + part.address;
        title.textContent = part.title + (part.heading && part.heading !== part.title ? ` › ${part.heading}` : "");
        text.textContent = around(part.text, words[0]);
        link.append(title, text);
        found.append(link);
      }
    };

    input.onfocus = load;
    input.oninput = () => { load(); show(); };
    form.onsubmit = (event) => {
      event.preventDefault();
      found.querySelector("a")?.click();
    };
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") found.hidden = true;
      if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
        event.preventDefault();
        input.focus();
      }
    });
    document.addEventListener("click", (event) => {
      if (!form.contains(event.target)) found.hidden = true;
    });
    found.addEventListener("click", (event) => {
      if (event.target.closest("a")) found.hidden = true;
    });
  };

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
