// A text field with a list of matches: the combobox of the ARIA practices, list on type.
import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useUniqueId } from "./hooks";

export interface Option {
  value: string;
  detail?: string;
  group?: string;
}

export function Combobox(props: {
  id: string;
  value: string;
  onChange: (value: string) => void;
  find: (text: string, signal: AbortSignal) => Promise<Option[]>;
  placeholder?: string;
  required?: boolean;
  invalid?: boolean;
  describedBy?: string;
  footer?: ComponentChildren;
}) {
  const listId = useUniqueId("list");
  const [open, setOpen] = useState(false);
  const [text, setText] = useState<string | null>(null); // null: untouched since it opened
  const [options, setOptions] = useState<Option[]>([]);
  const [at, setAt] = useState(-1);
  const list = useRef<HTMLUListElement>(null);
  const input = useRef<HTMLInputElement>(null);

  useEffect(() => {
    if (!open) return;
    const asked = new AbortController();
    const timer = setTimeout(
      () =>
        props
          .find(text ?? "", asked.signal)
          .then((found) => {
            setOptions(found);
            setAt(found.findIndex((option) => option.value === props.value));
          })
          .catch(() => setOptions([])),
      text ? 120 : 0,
    );
    return () => {
      clearTimeout(timer);
      asked.abort();
    };
  }, [open, text]);

  useEffect(() => {
    list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [at, options]);

  const close = () => {
    setOpen(false);
    setText(null);
  };
  const pick = (option: Option | undefined) => {
    if (option) props.onChange(option.value);
    close();
  };
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLInputElement>) => {
    switch (event.key) {
      case "ArrowDown":
      case "ArrowUp": {
        event.preventDefault();
        if (!open) return setOpen(true);
        const step = event.key === "ArrowDown" ? 1 : -1;
        const length = options.length;
        if (length) setAt((at + step + length) % length);
        return;
      }
      case "Enter":
        if (!open) return;
        event.preventDefault();
        return pick(options[at] ?? (options.length === 1 ? options[0] : undefined));
      case "Escape":
        if (open) event.preventDefault();
        return close();
      case "Tab":
        return close();
    }
  };

  return (
    <div class="combobox">
      <input
        ref={input}
        id={props.id}
        type="text"
        role="combobox"
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        aria-expanded={open}
        aria-controls={listId}
        aria-autocomplete="list"
        aria-activedescendant={open && options[at] ? `${listId}-${at}` : undefined}
        aria-invalid={props.invalid || undefined}
        aria-describedby={props.describedBy}
        required={props.required}
        placeholder={props.placeholder}
        value={props.value}
        onInput={(event) => {
          setText(event.currentTarget.value);
          props.onChange(event.currentTarget.value);
          setOpen(true);
        }}
        onFocus={(event) => event.currentTarget.select()}
        onClick={() => setOpen(true)}
        onBlur={close}
        onKeyDown={onKeyDown}
      />
      <ul id={listId} ref={list} role="listbox" aria-label="Matches" hidden={!open}>
        {options.map((option, index) => (
          <li
            key={option.value}
            id={`${listId}-${index}`}
            role="option"
            aria-selected={index === at}
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => pick(option)}
          >
            <span>{option.value}</span>
            {option.detail && <small>{option.detail}</small>}
          </li>
        ))}
        {!options.length && (
          <li class="empty" role="option" aria-selected="false" aria-disabled="true">
            {props.footer ?? "No match"}
          </li>
        )}
      </ul>
    </div>
  );
}
