// Elements onto which a file can be dropped.

for (const name of ["dragover", "drop"]) window.addEventListener(name, (event) => event.preventDefault()); // otherwise the browser would open the file

export function acceptDrops(zone, onFile) {
  const isFile = (event) => event.dataTransfer.types.includes("Files");
  zone.addEventListener("dragover", (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    zone.classList.remove("over");
    if (!isFile(event)) return;
    event.preventDefault();
    onFile(event.dataTransfer.files[0] ?? null);
  });
}
