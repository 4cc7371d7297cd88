/* Before anything is drawn: the theme that was chosen by hand. Not a module, so that it does not come late. */
(function () {
    let theme = null;
    try {
        theme = JSON.parse(localStorage.getItem("sluice.theme"));
    } catch {
        // nothing, or no storage: the system's choice
    }
    if (theme === "dark" || theme === "light")
        document.documentElement.dataset.theme = theme;
})();
