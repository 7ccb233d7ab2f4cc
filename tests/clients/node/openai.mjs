// OpenAI's client for Node: chats and responses.

import OpenAI from "openai";
import { MODEL, PARAMETERS, SCHEMA, TOOL, URL, chat, main } from "./scenarios.mjs";

const sdk = new OpenAI({ apiKey: "none", baseURL: `${URL}/v1`, maxRetries: 0, timeout: 30_000 });

const asked = (say, tools) => ({ ...chat(say), ...(tools && { tools: [TOOL] }) });

function made(completion) {
  const { message, finish_reason } = completion.choices[0];
  const calls = (message.tool_calls ?? []).map((call) => call.function);
  return {
    text: message.content,
    calls: calls.map(({ name, arguments: text }) => ({ name, arguments: JSON.parse(text) })),
    end: finish_reason,
  };
}

const chats = {
  stream: async (say, tools) => made(await sdk.chat.completions.stream(asked(say, tools)).finalChatCompletion()),
  whole: async (say, tools) => made(await sdk.chat.completions.create(asked(say, tools))),
  typed: async (say) => {
    const form = { type: "json_schema", json_schema: { name: "n", schema: SCHEMA, strict: true } };
    return JSON.parse(made(await sdk.chat.completions.create({ ...chat(say), response_format: form })).text);
  },
  leave: async (say) => {
    for await (const chunk of await sdk.chat.completions.create({ ...chat(say), stream: true }))
      if (chunk.choices[0]?.delta.content) return chunk.choices[0].delta.content;
  },
};

const tool = { type: "function", name: "dir", description: "d", parameters: PARAMETERS, strict: false };
const input = (say, tools) => ({ model: MODEL, input: say, ...(tools && { tools: [tool] }) });

function madeResponse(response) {
  const calls = response.output.filter((item) => item.type === "function_call");
  const thoughts = response.output.filter((item) => item.type === "reasoning");
  return {
    text: response.output_text,
    calls: calls.map((call) => ({ name: call.name, arguments: JSON.parse(call.arguments) })),
    thought: thoughts.map((item) => item.content[0].text).join("") || null,
    parks: response.preempt.parks,
  };
}

const responses = {
  stream: async (say, tools) => madeResponse(await sdk.responses.stream(input(say, tools)).finalResponse()),
  whole: async (say, tools) => madeResponse(await sdk.responses.create(input(say, tools))),
  typed: async (say) => {
    const format = { type: "json_schema", name: "n", schema: SCHEMA, strict: true };
    return JSON.parse((await sdk.responses.create({ ...input(say), text: { format } })).output_text);
  },
  leave: async (say) => {
    for await (const event of await sdk.responses.create({ ...input(say), stream: true }))
      if (event.type === "response.output_text.delta") return event.delta;
  },
};

await main({ "openai node chat": chats, "openai node responses": responses });
