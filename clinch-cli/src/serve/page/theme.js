// The theme that was chosen, before anything is drawn. Without a choice the system's counts.
'use strict';
{
  const themes = ['auto', 'light', 'dark'];
  const key = 'clinch-theme';
  const stored = () => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // storage is off
    }
  };
  const apply = (theme) => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  let theme = themes.includes(stored()) ? stored() : 'auto';
  apply(theme);

  window.clinchTheme = {
    get: () => theme,
    next() {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      apply(theme);
      try {
        localStorage.setItem(key, theme);
      } catch {
        // It is for this page only, then.
      }
      return theme;
    },
  };
}
