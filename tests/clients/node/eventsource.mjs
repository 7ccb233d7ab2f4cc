// eventsource-parser over fetch, with nothing between it and the events of a chat.

import { createParser } from "eventsource-parser";
import { SCHEMA, TOOL, URL, chat, main } from "./scenarios.mjs";

const post = async (body) => {
  const response = await fetch(`${URL}/v1/chat/completions`, { method: "POST", body: JSON.stringify(body) });
  if (response.ok) return response;
  const { error } = await response.json();
  throw Object.assign(new Error(error.message), { status: response.status });
};
const asked = (say, tools) => ({ ...chat(say), ...(tools && { tools: [TOOL] }) });

// The choices of a stream, until [DONE]. Throws what the stream tells as an error.
async function* choicesOf(body) {
  const response = await post({ ...body, stream: true });
  const events = [];
  const parser = createParser({ onEvent: (event) => events.push(event.data) });
  const decoder = new TextDecoder();
  for await (const bytes of response.body) {
    parser.feed(decoder.decode(bytes, { stream: true }));
    for (const data of events.splice(0)) {
      if (data === "[DONE]") return;
      const told = JSON.parse(data);
      if (told.error) throw Object.assign(new Error(told.error.message), { status: 200 });
      yield* told.choices;
    }
  }
}

const parsed = (message) => ({
  ...message,
  calls: message.calls.map((call) => ({ name: call.name, arguments: JSON.parse(call.arguments) })),
  thought: message.thought || null,
});

const events = {
  stream: async (say, tools) => {
    const message = { text: "", calls: [], thought: "" };
    for await (const { delta, finish_reason } of choicesOf(asked(say, tools))) {
      message.text += delta.content ?? "";
      message.thought += delta.reasoning_content ?? "";
      for (const piece of delta.tool_calls ?? []) {
        if (piece.id) message.calls.push({ name: piece.function.name, arguments: "" });
        message.calls[piece.index].arguments += piece.function.arguments ?? "";
      }
      message.end = finish_reason;
    }
    return parsed(message);
  },
  whole: async (say, tools) => {
    const body = await (await post(asked(say, tools))).json();
    const { message, finish_reason } = body.choices[0];
    const calls = (message.tool_calls ?? []).map((call) => call.function);
    const { content: text, reasoning_content: thought } = message;
    return parsed({ text, calls, thought, end: finish_reason, parks: body.preempt.parks });
  },
  typed: async (say) => {
    const form = { type: "json_schema", json_schema: { name: "n", schema: SCHEMA } };
    const body = await (await post({ ...chat(say), response_format: form })).json();
    return JSON.parse(body.choices[0].message.content);
  },
  leave: async (say) => {
    for await (const { delta } of choicesOf(chat(say))) if (delta.content) return delta.content;
  },
};

await main({ "eventsource-parser": events });
