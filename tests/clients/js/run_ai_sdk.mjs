// Vercel's AI SDK, with its provider for compatible servers, or (`openai` behind the scenario) OpenAI's own.

import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, isStepCount, jsonSchema, streamText, tool } from 'ai'

import { note, run } from './runner.mjs'

function modelOf(base, request, provider) {
  if (provider === 'openai') return createOpenAI({ baseURL: base, apiKey: 'none' }).chat(request.model)
  return createOpenAICompatible({ name: 'elbowroom', baseURL: base, includeUsage: true })(request.model)
}

const optionsOf = ({ base, request, more }) => ({
  model: modelOf(base, request, more[0]),
  messages: request.messages,
  allowSystemInMessages: true,
  maxRetries: 0,
})

async function read(result, heard) {
  for await (const part of result.fullStream) {
    if (part.type === 'raw') heard.chunks += 1
    if (part.type === 'text-delta') heard.take(part.text)
    if (part.type === 'error') throw part.error
    if (part.type === 'finish') {
      heard.finish = part.finishReason
      heard.usage = part.totalUsage
    }
  }
}

const quiet = { includeRawChunks: true, onError() {} }

await run({
  async stream(asked) {
    await read(streamText({ ...optionsOf(asked), ...quiet }), asked.heard)
  },

  async whole(asked) {
    const answer = await generateText(optionsOf(asked))
    asked.heard.take(answer.text)
    asked.heard.finish = answer.finishReason
    asked.heard.usage = answer.usage
  },

  async tools(asked) {
    const { heard, request } = asked
    const execute = ({ path }) => {
      heard.calls.push(path)
      return note(path)
    }
    const tools = Object.fromEntries(
      request.tools.map(({ function: { name, description, parameters } }) => [
        name,
        tool({ description, inputSchema: jsonSchema(parameters), execute }),
      ]),
    )
    await read(streamText({ ...optionsOf(asked), ...quiet, tools, stopWhen: isStepCount(5) }), heard)
  },

  async stop(asked) {
    const controller = new AbortController()
    const result = streamText({ ...optionsOf(asked), ...quiet, abortSignal: controller.signal })
    for await (const part of result.fullStream) {
      if (part.type === 'text-delta') asked.heard.take(part.text)
      if (asked.heard.text) controller.abort()
    }
  },
})
