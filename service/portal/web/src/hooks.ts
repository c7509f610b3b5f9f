import { useEffect, useRef, useState } from "preact/hooks";

export interface Loading<T> {
  value: T | null;
  error: Error | null;
  reload: () => void;
}

/** Loads once per key; what an earlier key asked for is dropped when it comes late. */
export function useLoaded<T>(load: () => Promise<T>, key: string): Loading<T> {
  const [state, setState] = useState<{ value: T | null; error: Error | null }>({
    value: null,
    error: null,
  });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let current = true;
    load().then(
      (value) => current && setState({ value, error: null }),
      (error: Error) => current && setState({ value: null, error }),
    );
    return () => {
      current = false;
    };
  }, [key, turn]);
  return { ...state, reload: () => setTurn((n) => n + 1) };
}

/** Returns the value as it was once it has rested for a while. */
export function useRested<T>(value: T, ms: number): T {
  const [rested, setRested] = useState(value);
  const serial = JSON.stringify(value);
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    const timer = setTimeout(() => setRested(value), ms);
    return () => clearTimeout(timer);
  }, [serial]);
  return rested;
}

let counter = 0;

/** Returns an id that no other element has. */
export function useUniqueId(prefix: string): string {
  return useState(() => `${prefix}-${++counter}`)[0];
}
