// Applies the chosen theme before the page is drawn. This file is not a module, because modules run too late for that.
{
  const chosen = localStorage.getItem("kwire.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
