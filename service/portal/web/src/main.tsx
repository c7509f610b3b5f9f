// The frame around the views: header, theme, key, and which view the address names.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { apiKey, setApiKey } from "./api";
import { ComparePage } from "./compare";
import { FormPage } from "./form";
import { HistoryPage } from "./history";
import { KEY_WANTED } from "./parts";
import { knownTab, ResultPage } from "./result";
import { WorkersPage } from "./workers";
import "./style.css";

interface Route {
  path: string[];
  query: URLSearchParams;
}

function readRoute(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").map(decodeURIComponent), query: new URLSearchParams(query) };
}

function useRoute(): Route {
  const [route, setRoute] = useState(readRoute);
  useEffect(() => {
    const changed = () => setRoute(readRoute());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

type Theme = "auto" | "light" | "dark";
const THEMES: Theme[] = ["auto", "light", "dark"];
const THEME_KEY = "setpoint-theme";

function applyTheme(theme: Theme): void {
  if (theme === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
}

function storedTheme(): Theme {
  const stored = localStorage.getItem(THEME_KEY) as Theme | null;
  return stored && THEMES.includes(stored) ? stored : "auto";
}

function ThemeChoice() {
  const [theme, setTheme] = useState<Theme>(storedTheme);
  const change = (next: Theme) => {
    localStorage.setItem(THEME_KEY, next);
    applyTheme(next);
    setTheme(next);
  };
  return (
    <label class="theme">
      <span class="offscreen">Colours</span>
      <select value={theme} onChange={(event) => change(event.currentTarget.value as Theme)}>
        <option value="auto">System colours</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
    </label>
  );
}

function KeyDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [key, setKey] = useState(apiKey());
  useEffect(() => {
    const show = () => dialog.current?.showModal();
    addEventListener(KEY_WANTED, show);
    return () => removeEventListener(KEY_WANTED, show);
  }, []);
  return (
    <>
      <button type="button" class="link" onClick={() => dialog.current?.showModal()}>
        API key
      </button>
      <dialog ref={dialog} aria-labelledby="key-title">
        <form
          method="dialog"
          onSubmit={() => {
            setApiKey(key.trim());
            location.reload();
          }}
        >
          <h2 id="key-title">API key</h2>
          <p class="note">
            Only needed when this service asks for keys. It is kept in this browser tab and sent to
            this service alone.
          </p>
          <label class="field">
            <span>Key</span>
            <input
              type="password"
              autocomplete="off"
              value={key}
              onInput={(event) => setKey(event.currentTarget.value)}
            />
          </label>
          <div class="row">
            <button class="button primary">Use this key</button>
            <button type="button" class="button" onClick={() => dialog.current?.close()}>
              Cancel
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}

const LINKS: [string, string, string[]][] = [
  ["#/", "Tune", ["", "r"]],
  ["#/history", "History", ["history", "compare"]],
  ["#/workers", "Workers", ["workers"]],
];

function Header({ section }: { section: string }) {
  return (
    <header class="top">
      <a class="brand" href="#/">
        <img src="/static/icon.svg" alt="" width="28" height="28" />
        Setpoint
      </a>
      <nav aria-label="Main">
        {LINKS.map(([href, label, sections]) => (
          <a key={href} href={href} aria-current={sections.includes(section) ? "page" : undefined}>
            {label}
          </a>
        ))}
      </nav>
      <div class="tools">
        <KeyDialog />
        <ThemeChoice />
      </div>
    </header>
  );
}

function View({ path, query }: Route) {
  switch (path[0]) {
    case "":
      return <FormPage key={query.toString()} from={query.get("from")} nearest={query.has("nearest")} />;
    case "r":
      if (path[1]) return <ResultPage key={path[1]} id={path[1]} tab={knownTab(path[2])} />;
      break;
    case "history":
      return <HistoryPage query={query} />;
    case "compare":
      return <ComparePage first={query.get("a") ?? ""} second={query.get("b") ?? ""} />;
    case "workers":
      return <WorkersPage />;
  }
  return (
    <div class="page">
      <h1>There is no such page</h1>
      <p>
        <a href="#/">Start with the form</a>
      </p>
    </div>
  );
}

function App() {
  const route = useRoute();
  const main = useRef<HTMLElement>(null);
  const view = route.path.slice(0, 2).join("/");
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [view]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to content
      </a>
      <Header section={route.path[0] ?? ""} />
      <main id="main" ref={main} tabIndex={-1}>
        <View {...route} />
      </main>
      <footer class="bottom">
        <a href="/openapi.json">API description</a>
        <a href="/static/licences.txt">Licences</a>
        <span>Predictions are modelled until a validation measures them.</span>
      </footer>
    </>
  );
}

applyTheme(storedTheme());
const root = document.getElementById("app")!;
root.replaceChildren();
render(<App />, root);
