// Before the page is drawn: the theme that was chosen here before, if any; else the system's.
(() => {
  try {
    const chosen = localStorage.getItem("ketch-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* a browser that keeps nothing */ }
})();
