// The `@anthropic-ai/sdk` package.

import Anthropic from '@anthropic-ai/sdk'

import { run } from './runner.mjs'

await run({
  async managed({ base, request, heard }) {
    const client = new Anthropic({ baseURL: base.replace(/\/v1$/, ''), apiKey: 'none', maxRetries: 0 })
    const stream = client.beta.messages.stream(request)
    stream.on('streamEvent', () => (heard.chunks += 1))
    stream.on('text', (text) => heard.take(text))
    const message = await stream.finalMessage()
    heard.finish = message.stop_reason
    heard.usage = message.usage
    heard.calls = message.content.map((block) => block.type)
  },
})
