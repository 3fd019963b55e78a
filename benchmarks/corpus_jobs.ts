import { modelArchs } from '@/app/jobs/new/options';
import { defaultJobConfig, migrateJobConfig } from '@/app/jobs/new/jobConfig';
import { handleModelArchChange } from '@/app/jobs/new/utils';
import { setNestedValue } from '@/utils/hooks';
import { objectCopy } from '@/utils/basic';
for (const arch of modelArchs) {
  let job = objectCopy(migrateJobConfig(defaultJobConfig));
  const before = job;
  handleModelArchChange(job.config.process[0].model.arch, arch.name, before, (value, key) => { job = setNestedValue(job, value, key); });
  console.log(JSON.stringify({ arch: arch.name, job }));
}
